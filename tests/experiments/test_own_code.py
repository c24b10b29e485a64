"""Is a run that other code of one's own made another run, and nothing else refused?"""

import linecache

import pytest

from dpsparfl_jax import own_code
from dpsparfl_jax.origins import digest
from dpsparfl_jax.registry import LAYER_RULES, POLICIES, Registry
from experiments import cli
from tests import plugins, toy
from tests.experiments.small_runs import run

pytestmark = pytest.mark.usefixtures("own_policies")


def code_of(name="mine"):
    return own_code.of(toy.settings(schedule={"policy": name}))


def test_a_plugin_is_told_by_name_and_by_the_content_of_its_file(tmp_path):
    path = plugins.write(tmp_path)
    cli.load_plugin(str(path))
    (told,) = code_of()
    assert (told["kind"], told["name"], told["plugin"]) == ("policy", "mine", "mine.py")
    assert told["file_sha256"] == digest(path.read_bytes())
    written = path.read_text()
    source = written[written.index("@fl.register") :]
    assert told["source_sha256"] == digest(source.encode())
    assert code_of("random") == []
    path.write_text(written.replace("FIRST = 0", "FIRST = 1"))
    cli.load_plugin(str(path))
    (edited,) = code_of()
    assert POLICIES.get("mine")(None).init(1, 1) == 1
    assert edited["file_sha256"] != told["file_sha256"]
    assert edited["source_sha256"] == told["source_sha256"]
    assert own_code.changes([told], [edited]) == ["policy 'mine' of mine.py"]
    # Without a plugin only the source of the class is known: that is the same.
    unknown = {**edited, "plugin": "", "file_sha256": ""}
    for known in ([unknown], [{**told, "file_sha256": ""}], [], None, "damaged", [3]):
        assert own_code.changes(known, [edited]) == []
    other = {**unknown, "source_sha256": digest(b"other")}
    assert own_code.changes([other], [unknown]) == ["policy 'mine'"]


def test_code_without_a_source_has_no_digest():
    exec(plugins.POLICY, {"__name__": "nowhere"})
    (told,) = code_of()
    assert (told["plugin"], told["file_sha256"], told["source_sha256"]) == ("", "", "")


def test_cells_of_a_notebook_are_told_apart():
    digests = set()
    for number, change in enumerate(("", "1 + ", "")):
        cell = plugins.POLICY.replace("return FIRST", f"return {change}FIRST")
        name = f"<cell {number}>"
        linecache.cache[name] = (len(cell), None, cell.splitlines(True), name)
        exec(compile(cell, name, "exec"), {"__name__": "notebook"})
        (told,) = code_of()
        digests.add(told["source_sha256"])
    assert len(digests) == 2
    assert "" not in digests


def test_layer_rules_belong_to_models_of_ones_own(monkeypatch):
    monkeypatch.setattr(LAYER_RULES, "_entries", dict(LAYER_RULES._entries))
    monkeypatch.setattr(LAYER_RULES, "_origins", {})

    class Layer: ...

    @LAYER_RULES.register(Layer)
    class Rule: ...

    own = toy.settings(model={"name": "of_mine"})
    assert [(each["kind"], each["name"]) for each in own_code.of(own)] == [
        ("layer rule", "Layer")
    ]
    assert own_code.of(toy.settings()) == []


def test_a_name_registered_again_is_what_it_is_now():
    kind = Registry("toy")
    kind.register("one")(Registry)
    assert kind.origin("one") is None  # the package's own class
    assert kind.origin("two") is None


def test_a_failing_policy_is_one_sentence_and_leaves_no_folder(tmp_path, cache):
    broken = plugins.POLICY.replace("rows = np", "rows = oops + np")
    path, out = plugins.write(tmp_path, broken), tmp_path / "runs" / "o"
    flags = (cache, f"--plugin={path}", "--length.rounds=1")
    line = 1 + [" oops " in text for text in broken.splitlines()].index(True)
    sentence = (
        "policy 'mine' failed in round 1: NameError: name 'oops' is not defined "
        f"(mine.py, line {line}, in plan). fl.plan(settings) in Python shows the whole "
        "traceback.\n"
    )
    for program, how in (
        ("experiments.run", ("--schedule.policy=mine",)),
        ("experiments.sweep", ("--grid=schedule.policy=mine;seed=0,1",)),
    ):
        done = run(out, *flags, *how, program=program)
        assert (done.returncode, done.stderr) == (2, sentence)
        assert not out.parent.exists()
