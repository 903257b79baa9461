"""`lasthop completion SHELL`: the script for shell completion."""

from __future__ import annotations

import click

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_LASTHOP_COMPLETE"


@click.command("completion")
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that completes commands, options, kinds, and names of a running gateway's objects in SHELL.

    \b
    Examples:
      eval "$(lasthop completion bash)"                                        in ~/.bashrc
      eval "$(lasthop completion zsh)"                                         in ~/.zshrc, after compinit
      lasthop completion fish > ~/.config/fish/completions/lasthop.fish
    """
    from click.shell_completion import get_completion_class

    completion_class = get_completion_class(shell)
    assert completion_class is not None
    click.echo(completion_class(ctx.find_root().command, {}, "lasthop", VARIABLE).source())
