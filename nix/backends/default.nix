# The backends by name. Each has `mkEnvironment`, which takes name, packages, interpreter, stdinMode, projectMount and
# inheritVars, and options of its own; and answers with a derivation that has bin/run.
#
# `jail` and `microvm` are taken for callers that pass packages of other sandboxes; none of them is needed here.
{
  pkgs,
  jail ? null,
  microvm ? null,
}:

{
  jail = import ./jail.nix { inherit pkgs; };
  microvm = import ./microvm.nix { inherit pkgs; };
}
