# Everything that this flake makes, for one package set. `source` is the project's own directory.
{ pkgs, source }:

let
  backends = import ./backends { inherit pkgs; };
  mkSandbox = import ./lib/mkSandbox.nix { inherit pkgs backends; };
  cofferdam = import ./package.nix { inherit pkgs source; };
in
rec {
  inherit mkSandbox cofferdam;

  # python, shell and node out of this package set: bundled with a server, so that it needs nothing of its host.
  baseEnvironments = import ./lib/baseEnvironments.nix { inherit pkgs mkSandbox; };

  # The MCP server as a program: it knows the base environments, and reads more from `configPath` while it runs.
  mkServer =
    configPath:
    let
      quoted = text: "'" + builtins.replaceStrings [ "'" ] [ "'\\''" ] text + "'";
    in
    pkgs.writeTextFile {
      name = "cofferdam-mcp";
      executable = true;
      destination = "/bin/cofferdam-mcp";
      text = ''
        #!${pkgs.runtimeShell}
        export COFFERDAM_METADATA=${quoted baseEnvironments.metadataJson}
        export COFFERDAM_CONFIG=${quoted (toString configPath)}
        exec ${cofferdam}/bin/cofferdam mcp "$@"
      '';
    };

  # The environment that the tests build and run.
  testSandbox = mkSandbox {
    name = "test-sandbox";
    packages = [ pkgs.python3 ];
    interpreter = "python3 -c";
    description = "Python, for tests";
  };

  checks = import ./tests {
    inherit pkgs backends mkSandbox mkServer baseEnvironments testSandbox;
  };
}
