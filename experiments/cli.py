"""What every command-line program shares: flags from sections, and kind errors."""

import contextlib
import dataclasses
import importlib
import importlib.util
import inspect
import pathlib
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn

from absl import app, flags, logging

from dpsparfl_jax import __version__, config, config_values, origins
from dpsparfl_jax.errors import InputError, OwnCodeError, UnregisteredError

from . import interrupting, usage

BAD_INPUT = 2
_HELP = {"-?", "-h", "-help", "--help", "--helpfull", "--helpshort", "--helpxml"}
_LONGEST_PATH = 3000  # of a folder: systems take 4096, and a run's files need the rest


def define_config_flags(base: config.RunConfig, only: Sequence[str] = ()) -> None:
    """Defines `--section.field` for every setting; unset keeps the value of `base`.

    With `only`, for these alone.
    """
    define: dict[type, Callable[..., Any]] = {
        bool: flags.DEFINE_bool,
        int: flags.DEFINE_integer,
        float: flags.DEFINE_float,
        str: flags.DEFINE_string,
    }
    for section in config.SECTIONS:
        values = getattr(base, section)
        for field in dataclasses.fields(values):
            name, value = f"{section}.{field.name}", getattr(values, field.name)
            if not only or name in only:
                kind = str if field.metadata["each"] else type(field.default)
                define[kind](name, None, usage.setting_help(field, value))
    for old, new in config_values.RENAMED_SETTINGS.items():
        if new in flags.FLAGS:
            flags.DEFINE_alias(old, new)
    flags.DEFINE_multi_string(
        "plugin", [], "Python file or module with what you register; read first"
    )
    if not only:
        flags.DEFINE_integer(
            "seed", None, f"seed of everything random (default: {base.seed})"
        )


def current_name(setting: str) -> str:
    """The present name of a setting; says so where an old one is used."""
    name = config_values.RENAMED_SETTINGS.get(setting, setting)
    if name != setting:
        print(f"{setting} is called {name} now: use that.", file=sys.stderr)
    return name


def load_plugin(name: str) -> None:
    """Runs a user's file or module, so that what it registers can be named."""
    try:
        if name.endswith(".py"):
            _run_file(pathlib.Path(name))
        else:
            with origins.loading(name, _source_of(name)):
                importlib.import_module(name)
    except (OSError, ImportError, SyntaxError, InputError) as reason:
        raise InputError(f"--plugin={name} cannot be loaded ({reason}).") from None
    except (Exception, SystemExit) as reason:  # whatever its code does when loaded
        what = f"{type(reason).__name__}, {reason}"
        raise InputError(f"--plugin={name} cannot be loaded ({what}).") from None


def _run_file(path: pathlib.Path) -> None:
    """Runs the very content whose digest is recorded, no compiled copy of it."""
    content = path.read_bytes()
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    with origins.loading(path.name, content):
        exec(compile(content, str(path), "exec", dont_inherit=True), vars(module))


def _source_of(module: str) -> bytes | None:
    """The content of a module's file, if it has one."""
    spec = importlib.util.find_spec(module)
    if spec is None or not spec.has_location or not spec.origin:
        return None
    return pathlib.Path(spec.origin).read_bytes()


def is_set(name: str) -> bool:
    """Whether the user gave this flag."""
    return flags.FLAGS[name].value is not None


def given(names: Sequence[str]) -> dict[str, str]:
    """Those of these flags that the user gave, as text."""
    return {name: str(flags.FLAGS[name].value) for name in names if is_set(name)}


def config_from_flags(base: config.RunConfig) -> config.RunConfig:
    """`base` with the flags that were set."""
    sections = {}
    for section in config.SECTIONS:
        values = getattr(base, section)
        given = {
            field.name: flags.FLAGS[f"{section}.{field.name}"].value
            for field in dataclasses.fields(values)
        }
        changes = {name: value for name, value in given.items() if value is not None}
        try:
            sections[section] = config_values.replaced(values, changes)
        except InputError as error:
            raise InputError(f"--{section}.{error}") from None
    seed = flags.FLAGS["seed"].value
    settings = config.RunConfig(**sections, seed=base.seed if seed is None else seed)
    settings.check_names()
    return settings


def notes(settings: config.RunConfig, axes: Sequence[str] = ()) -> tuple[str, ...]:
    """Sentences on flags that change nothing beside others; `axes` vary in a grid."""
    given = [name for name in flags.FLAGS if "." in name and is_set(name)]
    sentences = config_values.without_effect(settings, given)
    return tuple(
        sentence
        for sentence in sentences
        if not any(f" {axis}=" in sentence for axis in axes)
    )


def check_output(flag: str, path: str) -> None:
    """Refuses a file that could not be written at the end; empty means no file."""
    if not path:
        return
    target = pathlib.Path(path)
    if not target.resolve().parent.is_dir():
        raise InputError(f"--{flag}={path}: make its folder first.")
    if target.is_dir():
        raise InputError(f"--{flag}={path} is a folder: name a file in it.")


def check_picture(path: str) -> None:
    """Refuses a file of a format that no figure is drawn in."""
    if pathlib.Path(path).suffix.lower() not in (".pdf", ".png", ".svg"):
        raise InputError(
            f"a figure's file ending is one of pdf, png, svg, unlike {path!r}."
        )


def check_folder(flag: str, path: str) -> pathlib.Path:
    """The folder, made if need be; refuses one that cannot be written."""
    folder = pathlib.Path(path)
    if len(str(folder.absolute())) > _LONGEST_PATH:
        raise InputError(
            f"--{flag} is longer than {_LONGEST_PATH} characters, and files in it have "
            "names too: choose a shorter path."
        )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as reason:
        raise InputError(
            f"--{flag}={path} cannot be used as a folder ({reason.strerror})."
        ) from None
    return folder


@contextlib.contextmanager
def kept_if_used(path: str) -> Iterator[None]:
    """A folder that was not there before and is empty afterwards is removed again."""
    folder = pathlib.Path(path).absolute()
    new = [each for each in (folder, *folder.parents) if not each.exists()]
    try:
        yield
    finally:
        for each in new:
            with contextlib.suppress(OSError):  # it is not empty, or was never made
                each.rmdir()


def run(main: Callable[..., int | None]) -> None:
    """Runs a program: bad flags or input give one sentence and exit code 2.

    A main with a parameter gets the arguments that are no flags. What it returns is the
    exit code. Ctrl-C ends with 130 and no traceback.
    """
    takes_words = bool(inspect.signature(main).parameters)

    def parse(argv: Sequence[str]) -> list[str]:
        if _HELP & {argument.partition("=")[0] for argument in argv[1:]}:
            usage.show(usage.help_text(sys.modules[main.__module__].__doc__ or ""))
            sys.exit(0)
        if "--version" in argv[1:]:
            print(__version__)
            sys.exit(0)
        try:
            words = flags.FLAGS(argv)
        except flags.UnrecognizedFlagError as error:
            refuse(usage.unknown_flag(error.flagname))
        except flags.Error as error:
            refuse(str(error))
        for old in config_values.RENAMED_SETTINGS:
            if old in flags.FLAGS and flags.FLAGS[old].present:
                current_name(old)
        if len(words) > 1 and not takes_words:
            refuse(f"unexpected argument {words[1]!r}: settings are --name=value.")
        return words

    def guarded(argv: Sequence[str]) -> None:
        logging.set_verbosity(logging.WARNING)
        try:
            interrupting.give_back()
            for plugin in flags.FLAGS.flag_values_dict().get("plugin") or ():
                load_plugin(plugin)
            code = main(list(argv[1:])) if takes_words else main()
        except InputError as error:
            print(as_refusal(error), file=sys.stderr)
            sys.exit(BAD_INPUT)
        except OSError as error:
            what = f" {error.filename}" if error.filename else ""
            refuse(
                f"cannot use{what} ({error.strerror or error}): choose another file or "
                "folder."
            )
        except MemoryError as error:
            reason = f" ({error})" if str(error) else ""
            refuse(
                f"there is too little memory for this{reason}: lower the numbers of "
                "clients, channels or images, or choose a smaller model."
            )
        except KeyboardInterrupt:
            print(interrupting.WORD, file=sys.stderr)
            code = interrupting.CODE
        sys.exit(code)

    # What a library prints before it aborts says more than the list of all extension
    # modules that absl's choice of handler would add.
    vars(app)["faulthandler"] = None
    app.run(guarded, flags_parser=parse)


def refuse(message: str) -> NoReturn:
    """One sentence, exit code 2."""
    print(as_refusal(InputError(message)), file=sys.stderr)
    sys.exit(BAD_INPUT)


def as_refusal(error: InputError) -> str:
    """The sentence of an error, and where to look, unless no flag would help."""
    if isinstance(error, OwnCodeError):
        return str(error)
    if isinstance(error, UnregisteredError):
        return f"{error} What you registered in a file needs --plugin=FILE."
    return f"{error} (--help lists every flag)"
