document.documentElement.dataset.errors = "";
const note = text => { document.documentElement.dataset.errors += text + "; "; };
addEventListener("error", event => note(event.message));
addEventListener("unhandledrejection", event => note(event.reason));
addEventListener("securitypolicyviolation", event => note(event.blockedURI));
