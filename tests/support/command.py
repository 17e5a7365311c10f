"""Commands of ``ncl-bench`` in this process."""

from typer.testing import CliRunner

from ncl_bench.cli import app


def invoke(*words, code=0, **env):
    """Run a command to this exit code; give what it wrote. A refusal is raised."""
    done = CliRunner().invoke(app, [*map(str, words)], env=env, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done
