"""The disk cache: kept kernels are used, unless they could be anybody else's or are damaged."""

import contextlib
import dataclasses
import errno
import os
import pathlib
import resource
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import time

import pytest

from adjoint.backends.codegen import Kernel, cache, schedule, target
from adjoint.backends.codegen import run as run_kernels
from adjoint.core import debug, policy

NAME = "a" * 64
STRANGER = 65532  # a user that owns nothing
AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache" / "kernels"


def test_reads_what_was_written(place):
    assert cache.read(NAME) is None
    cache.write(NAME, b"code")
    assert cache.read(NAME) == b"code"
    assert place.stat().st_mode & 0o777 == 0o700
    assert (place / NAME).stat().st_mode & 0o077 == 0


def test_any_changed_bit_makes_a_file_absent(place):
    cache.write(NAME, b"some code")
    content = (place / NAME).read_bytes()
    for at in range(len(content)):
        for bit in range(8):
            changed = bytearray(content)
            changed[at] ^= 1 << bit
            (place / NAME).write_bytes(changed)
            assert cache.read(NAME) is None
    for longer in (content + b"x", b"x" + content, content * 2):
        (place / NAME).write_bytes(longer)
        assert cache.read(NAME) is None
    (place / NAME).write_bytes(content)
    assert cache.read(NAME) == b"some code"


def test_truncated_renamed_and_empty_files_are_absent(place):
    cache.write(NAME, b"some code")
    content = (place / NAME).read_bytes()
    for size in range(len(content)):
        (place / NAME).write_bytes(content[:size])
        assert cache.read(NAME) is None
    (place / ("b" * 64)).write_bytes(content)
    assert cache.read("b" * 64) is None


def test_files_that_others_could_have_written_are_absent(place, monkeypatch, tmp_path):
    cache.write(NAME, b"code")
    for mode in (0o620, 0o602, 0o666):
        (place / NAME).chmod(mode)
        assert cache.read(NAME) is None
    (place / NAME).chmod(0o600)
    assert cache.read(NAME) == b"code"
    for mode in (0o770, 0o707):
        place.chmod(mode)
        assert "is not the user's alone to write to" in cache.reason_off()
        assert cache.read(NAME) is None
    place.chmod(0o700)
    (tmp_path / "elsewhere").write_bytes((place / NAME).read_bytes())
    (place / NAME).unlink()
    (place / NAME).symlink_to(tmp_path / "elsewhere")
    assert cache.read(NAME) is None
    (place / NAME).unlink()
    os.mkfifo(place / NAME, 0o600)
    assert cache.read(NAME) is None
    monkeypatch.setattr(cache, "_user", lambda: os.geteuid() + 1)
    assert cache.reason_off()


def test_a_linked_directory_is_not_used(place, tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    place.parent.mkdir()
    place.symlink_to(tmp_path / "real")
    assert cache.reason_off()


def test_without_a_place_nothing_is_kept(monkeypatch, place, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "file" / "below"))
    cache.write(NAME, b"code")
    assert cache.read(NAME) is None
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "0")
    cache.write(NAME, b"code")
    assert not place.exists()


def test_the_oldest_used_are_removed_when_there_is_too_much(place, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "4000")
    monkeypatch.setattr(cache, "_written", 0)
    names = [f"{k:064x}" for k in range(8)]
    for age, name in enumerate(names[:6]):
        cache.write(name, bytes(500))
        os.utime(place / name, (1000 + age, 1000 + age))
    assert cache.read(names[0]) is not None  # used: newer than the others
    for name in names[6:]:
        cache.write(name, bytes(500))
    assert {path.name for path in place.iterdir()} == {
        cache.KEY,
        *(names[k] for k in (0, 4, 5, 6, 7)),
    }


def test_left_over_temporary_files_are_removed_too(place, monkeypatch):
    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "2000")
    monkeypatch.setattr(cache, "_written", 0)
    cache.write(NAME, bytes(100))
    (place / ".left").write_bytes(bytes(5000))
    os.utime(place / ".left", (1, 1))
    cache.write("b" * 64, bytes(500))
    assert not (place / ".left").exists()


PROGRAM = """
import sys, numpy as np
from adjoint.backends.codegen import Compiled, Kernel, target
compiles = []
compile = target.Target.compile
def counted(self, text):
    compiles.append(text)
    return compile(self, text)
target.Target.compile = counted
x = np.arange(1000, dtype=np.float32)
for n in range(6):  # and what calls them
    k = Kernel(rank=1)
    k.output(k.input("float32") * n + n)
    assert (Compiled(k)(x) == x * n + n).all()
print(len(compiles))
"""


def run(**environment):
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def compiled_by(process):
    out, error = process.communicate()
    assert process.returncode == 0, error
    return int(out)


def test_processes_at_once_and_then_one_that_starts_warm(place):
    together = [run() for _ in range(2)]
    assert all(0 <= compiled_by(process) <= 6 for process in together)
    assert compiled_by(run()) == 0
    for path in place.iterdir():
        if path.name != cache.KEY:
            path.write_bytes(path.read_bytes()[:-3] + b"bad")
    assert compiled_by(run()) == 6
    (place / cache.KEY).unlink()
    assert compiled_by(run()) == 6  # files of another key are foreign
    assert compiled_by(run()) == 0


def test_names_depend_on_everything_given_and_on_the_compiler(monkeypatch):
    name = cache.digest("kernel", "layout")
    assert len(name) == 64 and name == cache.digest("kernel", "layout")
    assert name != cache.digest("kernellayout") != cache.digest("kernel", "layou", "t")
    monkeypatch.setattr(cache, "_sources", lambda: "another version")
    assert name != cache.digest("kernel", "layout")


def test_names_depend_on_libraries_limits_and_all_sources_that_write_code(monkeypatch):
    import llvmlite
    import llvmlite.binding
    import numpy as np

    sources = cache._sources.__wrapped__
    before = sources()
    assert before == sources() == cache._sources()
    for where, name, value in (
        (llvmlite, "__version__", "0.0"),
        (llvmlite.binding, "llvm_version_info", (0, 0, 0)),
        (np, "__version__", "0.0"),
        (policy, "LIMITS", {**policy.LIMITS, "OPTIMIZER_CHUNK": policy.Limit(16, "")}),
    ):
        with monkeypatch.context() as changed:
            changed.setattr(where, name, value)
            assert sources() != before
    read = []
    monkeypatch.setattr(
        pathlib.Path, "read_bytes", lambda path: read.append(path.as_posix()) or b"other"
    )
    assert sources() != before
    for part in (
        "adjoint/backends/codegen/lower.py", "adjoint/backends/codegen/coefficients.json",
        "adjoint/backends/native/recurrent/loop.py", "adjoint/backends/native/gemm/tiles.py",
        "adjoint/backends/native/attention/tile_passes.py",
    ):  # fmt: skip
        assert any(path.endswith(part) for path in read)


@pytest.mark.parametrize("field", ["cpu", "features", "triple"])
def test_code_is_of_this_very_processor(monkeypatch, field):
    """What another one has compiled, or one with another feature, is not even looked for."""
    kernel = Kernel(rank=1)
    kernel.output(kernel.input("float32") * 3 + 14)
    asked = []
    monkeypatch.setattr(target, "freed", lambda name, *rest: asked.append(name))
    here = target.host()
    other = dataclasses.replace(here, **{field: getattr(here, field) + ",+another"})
    for host in (here, other, here):
        monkeypatch.setattr(target, "host", lambda host=host: host)
        run_kernels._load(kernel, schedule.plan(kernel, [9], [[4], [4]], ["float32"] * 2, 1).layout)
    assert asked[0] == asked[2] != asked[1]


# ---- who could have written it ------------------------------------------------------------------


@pytest.fixture
def way(tmp_path, monkeypatch):
    """Folders on the way, and the place in the last one."""
    folders = [tmp_path / "a", tmp_path / "a" / "b", tmp_path / "a" / "b" / "c"]
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(folders[-1]))
    monkeypatch.setattr(cache, "_is_private", lambda group, user: False)
    cache.write(NAME, b"code")
    assert cache.read(NAME) == b"code"
    return folders


def test_folders_that_are_made_are_the_users_alone(way):
    before = os.umask(0o002)
    try:
        assert {path.stat().st_mode & 0o777 for path in way} == {0o700}
    finally:
        os.umask(before)


@pytest.mark.parametrize("k", range(3))
@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_no_folder_on_the_way_is_open_to_others(way, k, mode):
    """But for one with the sticky bit: there others can neither remove nor rename what is ours."""
    way[k].chmod(mode)
    assert cache.read(NAME) is None
    assert "others' to change" in cache.reason_off()
    cache.write("b" * 64, b"code")
    assert not (way[-1] / "kernels" / ("b" * 64)).exists()
    way[k].chmod(mode | stat.S_ISVTX)
    assert cache.read(NAME) == b"code"
    way[k].chmod(0o755)
    assert cache.read(NAME) == b"code"


@AS_ROOT
def test_a_group_of_the_user_alone_is_nobody_else(way, monkeypatch):
    """As where each user has one, and folders are made with an umask of 002."""
    import grp
    import pwd

    place = way[-1] / "kernels"
    for path in (*way, place, place / NAME, place / cache.KEY):
        os.chown(path, STRANGER, STRANGER)
    way[1].chmod(0o775)
    monkeypatch.undo()
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(way[-1]))
    monkeypatch.setattr(cache, "_user", lambda: STRANGER)
    assert cache.read(NAME) is None  # a user without a name

    def known(members=(), others=(), primary=STRANGER):
        me = pwd.struct_passwd(("me", "x", STRANGER, primary, "", "/", ""))
        more = [pwd.struct_passwd((name, "x", 7, STRANGER, "", "/", "")) for name in others]
        monkeypatch.setattr(pwd, "getpwuid", {STRANGER: me}.__getitem__)
        monkeypatch.setattr(pwd, "getpwall", lambda: [me, *more])
        group = grp.struct_group(("me", "x", STRANGER, list(members)))
        monkeypatch.setattr(grp, "getgrgid", {STRANGER: group}.__getitem__)
        cache._is_private.cache_clear()
        return cache.read(NAME)

    try:
        assert known() == known(members=["me"]) == b"code"
        assert known(members=["me", "you"]) is None
        assert known(others=["you"]) is None
        assert known(primary=100) is None
        os.chown(way[1], STRANGER, 100)
        assert known() is None
        os.chown(way[1], STRANGER, STRANGER)
        way[1].chmod(0o777)
        assert known() is None
        way[1].chmod(0o775)
        place.chmod(0o770)
        assert known() is None  # the last folder is the user's, whatever the group
    finally:
        cache._is_private.cache_clear()


@AS_ROOT
def test_folders_and_files_of_others_are_refused(way):
    place = way[-1] / "kernels"
    for path in (*way, place, place / NAME, place / cache.KEY):
        os.chown(path, STRANGER, -1)
        assert cache.read(NAME) is None
        os.chown(path, 0, -1)
        assert cache.read(NAME) == b"code"


@pytest.fixture
def seen_by_all():
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


@AS_ROOT
def test_a_user_trusts_root_and_nobody_else(seen_by_all, monkeypatch):
    """The folders belong to root up to the one that is given to the user."""
    home = seen_by_all / "home"
    home.mkdir()
    os.chown(home, STRANGER, STRANGER)
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(home / "cache"))
    code = (
        "import os\n"
        "from adjoint.backends.codegen import cache\n"
        f"os.setgid({STRANGER}); os.setuid({STRANGER})\n"
        f"print(repr(cache.reason_off())); cache.write({NAME!r}, b'code')\n"
        f"print(cache.read({NAME!r}))"
    )

    def said():
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    assert said() == ["''", "b'code'"]
    assert (home / "cache" / "kernels" / NAME).stat().st_uid == STRANGER
    assert cache.read(NAME) is None  # root does not trust the user either
    os.chown(home, STRANGER - 1, -1)
    home.chmod(0o777)
    found = said()
    assert "others' to change" in found[0] and found[1] == "None"


def test_links_on_the_way_lead_to_folders_that_are_looked_at_too(way, tmp_path, monkeypatch):
    link = tmp_path / "link"
    for aim in ("a/b", str(way[1]), "a/../a/b", "./a/b/"):
        link.symlink_to(aim)
        monkeypatch.setenv("ADJOINT_CACHE_DIR", str(link / "c"))
        assert cache.read(NAME) == b"code"
        way[0].chmod(0o777)
        assert cache.read(NAME) is None
        way[0].chmod(0o700)
        link.unlink()
    link.symlink_to("link")
    assert cache.read(NAME) is None
    cache.write(NAME, b"code")
    link.unlink()
    link.symlink_to("nowhere")
    assert cache.read(NAME) is None


@AS_ROOT
def test_links_of_others_are_not_followed(way, tmp_path, monkeypatch):
    """In /tmp anybody can lay one to where a user keeps what strangers have sent."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    (shared / "link").symlink_to(way[1])
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(shared / "link" / "c"))
    assert cache.read(NAME) == b"code"
    os.chown(shared / "link", STRANGER, -1, follow_symlinks=False)
    assert cache.read(NAME) is None


def test_files_with_a_second_name_are_absent(place, tmp_path):
    """A link to what the user keeps has the right owner and mode, and a stranger's content."""
    cache.write(NAME, b"code")
    os.link(place / NAME, tmp_path / "second")
    assert cache.read(NAME) is None
    (tmp_path / "second").unlink()
    assert cache.read(NAME) == b"code"


def test_content_of_another_key_is_foreign(place, tmp_path, monkeypatch):
    """Written by the same program for the same name, elsewhere."""
    cache.write(NAME, b"code")
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "other"))
    cache.write(NAME, b"evil")
    monkeypatch.setenv("ADJOINT_CACHE_DIR", str(tmp_path / "cache"))
    (place / NAME).write_bytes((tmp_path / "other" / "kernels" / NAME).read_bytes())
    assert cache.read(NAME) is None


@pytest.mark.parametrize(
    "spoil",
    [
        lambda key: key.chmod(0o640),
        lambda key: key.chmod(0o604),
        lambda key: key.write_bytes(b""),
        lambda key: key.write_bytes(bytes(31)),
        lambda key: key.write_bytes(bytes(33)),
        lambda key: key.unlink(),
        lambda key: (key.unlink(), key.symlink_to("/dev/zero")),
        lambda key: (key.unlink(), os.mkfifo(key)),
        lambda key: os.link(key, key.parent.parent / "second"),
    ],
)
def test_a_key_that_others_may_know_is_replaced(place, spoil):
    cache.write(NAME, b"code")
    spoil(place / cache.KEY)
    assert cache.read(NAME) is None
    cache.write(NAME, b"new code")
    assert cache.read(NAME) == b"new code"
    state = (place / cache.KEY).stat()
    assert state.st_size == 32 and state.st_mode & 0o777 == 0o600 and state.st_nlink == 1


# ---- what is in the way --------------------------------------------------------------------------


def test_folders_at_a_files_place_are_no_error(place):
    cache.write(NAME, b"code")
    (place / NAME).unlink()
    (place / NAME).mkdir()
    assert cache.read(NAME) is None
    cache.write(NAME, b"code")
    assert (place / NAME).is_dir() and len(list(place.iterdir())) == 2  # nothing is left behind
    (place / cache.KEY).unlink()
    (place / cache.KEY).mkdir()
    cache.write("b" * 64, b"code")
    assert cache.read("b" * 64) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS])
@pytest.mark.parametrize("call", ["open", "replace", "mkdir"])
def test_a_disk_that_fails_is_no_error(place, monkeypatch, call, number):
    if call != "mkdir":
        cache.write("b" * 64, b"code")

    def fails(*args, **kwargs):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as changed:
        if call == "open":
            whole = os.open
            changed.setattr(
                os, "open",
                lambda path, flags, *more, **k: (
                    fails() if flags & os.O_CREAT else whole(path, flags, *more, **k)
                ),
            )  # fmt: skip
            changed.setattr(os, "supports_dir_fd", {*os.supports_dir_fd, os.open})
        else:
            changed.setattr(os, call, fails)
        cache.write(NAME, b"code")
        assert cache.read(NAME) is None
    assert not list(place.parent.rglob(".*"))
    cache.write(NAME, b"code")
    assert cache.read(NAME) == b"code"


def test_a_full_disk_leaves_nothing_behind(place):
    """A file may be no larger than a few bytes: what is written so far is removed again."""
    cache.write("b" * 64, b"code")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
        cache.write(NAME, bytes(100_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert {path.name for path in place.iterdir()} == {cache.KEY, "b" * 64}
    assert cache.read(NAME) is None


def test_without_a_home_kernels_are_compiled(tmp_path):
    code = (
        "import numpy as np, os, pwd\n"
        "def unknown(*args): raise KeyError(args)\n"
        "pwd.getpwuid = pwd.getpwnam = unknown\n"
        "from adjoint.backends.codegen import Compiled, Kernel, cache\n"
        "k = Kernel(rank=1); k.output(k.input('float32') * 2)\n"
        "print(Compiled(k)(np.ones(3, np.float32)).tolist(), repr(cache.reason_off()))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("ADJOINT_CACHE_DIR", None)
    for home, said in ((None, "home directory"), ("/proc/nowhere", "No such file")):
        environment.pop("HOME", None)
        if home is not None:
            environment["HOME"] = home
        done = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True,
            cwd=tmp_path,
        )  # fmt: skip
        assert done.returncode == 0 and not done.stderr, done.stderr
        assert done.stdout.startswith("[2.0, 2.0, 2.0]") and said in done.stdout
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_read(place):
    cache.write(NAME, b"code")
    place.chmod(0o500)
    assert cache.read(NAME) == b"code"
    cache.write("b" * 64, b"code")  # root writes it nevertheless
    place.chmod(0o700)


def test_an_empty_setting_keeps_nothing(place, monkeypatch, tmp_path):
    monkeypatch.setenv("ADJOINT_CACHE_DIR", "")
    monkeypatch.chdir(tmp_path)
    cache.write(NAME, b"code")
    assert cache.read(NAME) is None and not list(tmp_path.iterdir())


# ---- several at once -----------------------------------------------------------------------------


def test_threads_at_once_make_one_key_and_whole_files(place):
    names = [f"{k:064x}" for k in range(4)]
    contents = {name: name.encode() * 5000 for name in names}
    wrong = []

    def work():
        for _ in range(30):
            for name in names:
                cache.write(name, contents[name])
                found = cache.read(name)
                if found not in (contents[name], None):
                    wrong.append(name)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    for name in names:
        cache.write(name, contents[name])
        assert cache.read(name) == contents[name]
    assert {path.name for path in place.iterdir()} == {cache.KEY, *names}


def test_a_process_killed_while_it_writes_leaves_whole_files(place):
    whole = b"whole" * 200_000
    cache.write(NAME, whole)
    for delay in (0.0, 0.003, 0.01, 0.02):
        process = os.fork()
        if not process:
            while True:
                cache.write(NAME, whole)
        time.sleep(delay)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        assert cache.read(NAME) == whole
    cache.write(NAME, b"code")
    assert cache.read(NAME) == b"code"


def test_a_cache_that_is_removed_meanwhile_is_no_error(place, monkeypatch):
    """Between opening the folder and looking through it."""
    import shutil

    monkeypatch.setenv("ADJOINT_CACHE_BYTES", "1000")
    monkeypatch.setattr(cache, "_written", 10**9)
    trim = cache._trim

    def removed(folder):
        shutil.rmtree(place)
        trim(folder)

    monkeypatch.setattr(cache, "_trim", removed)
    cache.write(NAME, b"code")
    assert cache.read(NAME) is None
    with contextlib.suppress(FileNotFoundError):
        assert not list(place.iterdir())


def test_the_debug_level_has_a_word(place, capsys, monkeypatch):
    cache.read(NAME)
    assert not capsys.readouterr().err
    monkeypatch.setattr(debug, "on", frozenset({"kernels"}))
    cache.read(NAME)
    assert capsys.readouterr().err.startswith("kernels: aaaaaaaaaaaa: compiled: [Errno 2]")
