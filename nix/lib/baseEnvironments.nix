# python, shell and node out of a package set, and what a server is told of them (COFFERDAM_METADATA).
{
  pkgs,
  mkSandbox ? import ./mkSandbox.nix {
    inherit pkgs;
    backends = import ../backends { inherit pkgs jail; };
  },
  # For callers that pass them; neither is needed.
  jail ? null,
  presets ? null,
}:

let
  timeout_seconds = 30;
  memory_mb = 512;

  definitions = {
    python = {
      packages = [ pkgs.python3 ];
      interpreter = "python3 -c";
      type = "python";
    };
    shell = {
      packages = [
        pkgs.bash
        pkgs.coreutils
      ];
      interpreter = "bash -s";
      type = "bash";
    };
    node = {
      packages = [ pkgs.nodejs ];
      interpreter = "node -e";
      type = "node";
    };
  };

  artifacts = builtins.mapAttrs (
    name:
    { packages, interpreter, ... }:
    mkSandbox { inherit name packages interpreter timeout_seconds memory_mb; }
  ) definitions;
in
{
  inherit artifacts;
  drvs = builtins.attrValues artifacts;
  metadataJson = builtins.toJSON {
    environments = builtins.mapAttrs (name: artifact: {
      backend = "jail";
      exec = "${artifact}/bin/run";
      session_exec = "${artifact}/bin/session-run";
      session_agent = definitions.${name}.type;
      inherit timeout_seconds memory_mb;
      interpreter_type = definitions.${name}.type;
    }) artifacts;
  };
}
