# The backends by name. Each has `mkEnvironment`, which takes name, packages, interpreter, stdinMode, projectMount and
# inheritVars, and options of its own; and answers with a derivation that has bin/run.
{ pkgs }:

{
  jail = import ./jail.nix { inherit pkgs; };
  microvm = import ./microvm.nix { inherit pkgs; };
}
