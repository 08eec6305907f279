# Checks of what this flake makes: artifacts are built, looked at and told apart by real Nix. Whether they run in the jail
# is the Rust tests' to say (crates/cli/tests/nix.rs), since Nix's builders are no place for it.
{
  pkgs,
  backends,
  mkSandbox,
  mkServer,
  baseEnvironments,
  testSandbox,
}:

let
  packages = [ pkgs.python3 ];

  # What an evaluation throws is not to be had in the language; that it throws is.
  throws = value: !(builtins.tryEval (builtins.seq value.drvPath true)).success;
  evaluates = value: (builtins.tryEval (builtins.seq value.drvPath true)).success;

  minimal = mkSandbox {
    name = "minimal";
    inherit packages;
  };

  rules = {
    "eleven arguments and no other" =
      builtins.functionArgs mkSandbox == {
        name = false;
        packages = false;
        interpreter = true;
        stdinMode = true;
        backend = true;
        timeout_seconds = true;
        memory_mb = true;
        description = true;
        projectMount = true;
        inheritVars = true;
        backendOptions = true;
      };
    "name and packages are enough" = evaluates minimal;
    "an unknown backend is thrown" = throws (mkSandbox {
      name = "x";
      inherit packages;
      backend = "jails";
    });
    "a virtual machine is thrown, and is a backend" =
      backends ? microvm
      && throws (mkSandbox {
        name = "x";
        inherit packages;
        backend = "microvm";
      });
    "names that no environment can have are thrown" = throws (mkSandbox {
      name = "../x";
      inherit packages;
    });
    "an interpreter with quotes is thrown" = throws (mkSandbox {
      name = "x";
      inherit packages;
      interpreter = "sh -c 'exit'";
    });
    "an unknown stdinMode is thrown" = throws (mkSandbox {
      name = "x";
      inherit packages;
      stdinMode = "args";
    });
    "limits of nothing are thrown" = throws (mkSandbox {
      name = "x";
      inherit packages;
      memory_mb = 0;
    });
    "options are arguments of the backend, also the backend's own name for one" = evaluates (mkSandbox {
      name = "x";
      inherit packages;
      backendOptions.cofferdam = "/opt/cofferdam";
    });
    "an option that stands for itself is thrown" = throws (mkSandbox {
      name = "x";
      inherit packages;
      backendOptions.interpreter = "bash -s";
    });
    "the base environments are three" =
      builtins.attrNames baseEnvironments.artifacts == [
        "node"
        "python"
        "shell"
      ];
    "a server bundles them" = evaluates (mkServer "/etc/cofferdam/config.toml");
    "arguments of other builders are taken" =
      (import ../backends { inherit pkgs; jail = null; }) ? jail
      && builtins.attrNames (import ../lib/baseEnvironments.nix { inherit pkgs; jail = null; presets = { }; }).artifacts
        == builtins.attrNames baseEnvironments.artifacts;
  };
  failed = builtins.filter (name: !rules.${name}) (builtins.attrNames rules);

  named = mkSandbox {
    name = "named";
    inherit packages;
    interpreter = "node -e";
    timeout_seconds = 7;
    memory_mb = 64;
    description = "It's \"named\"";
  };

  look = pkgs.runCommand "cofferdam-artifacts" { } ''
    is() { # an artifact, and its whole metadata
      test -x "$1/bin/run" && test -f "$1/metadata.json"
      found=$(cat "$1/metadata.json")
      [ "$found" = "$2" ] || { echo "$1/metadata.json: $found" >&2; exit 1; }
    }
    set -e
    is ${minimal} '{"backend":"jail","interpreter":"bash -s","memory_mb":512,"name":"minimal","session_agent":"bash","stdin_mode":"pipe","timeout_seconds":30}'
    is ${testSandbox} '{"backend":"jail","description":"Python, for tests","interpreter":"python3 -c","memory_mb":512,"name":"test-sandbox","session_agent":"python","stdin_mode":"arg","timeout_seconds":30}'
    grep -q '"interpreter":"node -e","memory_mb":64,"name":"named","session_agent":"node","stdin_mode":"arg","timeout_seconds":7' ${named}/metadata.json
    # Without a sandbox around it, and without what makes one, nothing runs.
    if echo 'echo ran' | PATH=/nowhere ${minimal}/bin/run > out 2> told; then exit 1; fi
    [ ! -s out ] && grep -q 'no sandbox around this program' told
    touch $out
  '';
in
{
  artifacts =
    if failed == [ ] then look else throw "these do not hold: ${builtins.concatStringsSep "; " failed}";
}
