# An environment for the jail: bin/run gives the code to the interpreter, with the packages on PATH, and is no wall itself.
#
# Cofferdam puts its jail around bin/run, and says so by COFFERDAM_ENVIRONMENT. Called by anybody else, bin/run does not
# run the code: it has `cofferdam eval` run the artifact, and where there is no `cofferdam` it says so and stops.
{ pkgs }:

{
  mkEnvironment =
    {
      name,
      packages,
      # Words without quotes: no shell reads them.
      interpreter,
      # "arg" or "pipe".
      stdinMode,
      # Where a project is shown when bin/run is called outside of Cofferdam.
      projectMount,
      # The caller's variables that go in then.
      inheritVars,
      # The program that makes the jail, where not the one on PATH: a path.
      cofferdam ? "cofferdam",
    }:
    let
      quoted = text: "'" + builtins.replaceStrings [ "'" ] [ "'\\''" ] text + "'";
      isWord = text: builtins.isString text && text != "";
      words = builtins.filter isWord (builtins.split "[ \t\n]+" interpreter);
      command = builtins.concatStringsSep " " (map quoted words);
      # What makes it run one argument or its standard input: an agent brings its own.
      count = builtins.length words;
      takesCode = builtins.elem (builtins.elemAt words (count - 1)) [
        "-c"
        "-e"
        "-s"
        "-"
      ];
      alone = builtins.genList (builtins.elemAt words) (if takesCode then count - 1 else count);
      path = builtins.concatStringsSep ":" (map (package: "${package}/bin") packages);
      variables = builtins.concatStringsSep " " (map (variable: "-e ${quoted variable}") inheritVars);
      pass =
        {
          arg = ''
            # Up to the end or to a NUL byte, which no argument can hold.
            mapfile -d "" code
            if [ "''${#code[@]}" -gt 1 ]; then
              echo "${name}: the code has a NUL byte in it, and goes to the interpreter as an argument" >&2
              exit 65
            fi
            exec ${command} "''${code[0]-}"
          '';
          pipe = ''
            exec ${command}
          '';
        }
        .${stdinMode};
    in
    # Where this is an interpreter that Cofferdam has an agent for, sessions are that interpreter with the agent, which are
    # the arguments of bin/session-run.
    {
      sessionRun = pkgs.writeTextFile {
        name = "session-run-${name}";
        executable = true;
        destination = "/bin/session-run";
        text = ''
          #!${pkgs.runtimeShell}
          # ${name}: an interpreter that keeps its state, for the agent that is its arguments.
          if [ -z "''${COFFERDAM_ENVIRONMENT+inside}" ] || [ "$#" -eq 0 ]; then
            echo "${name}: sessions are begun by cofferdam mcp; nothing was run" >&2
            exit 125
          fi
          export PATH=${quoted path}"''${PATH:+:$PATH}"
          exec ${builtins.concatStringsSep " " (map quoted alone)} "$@"
        '';
      };
    }
    // pkgs.writeTextFile {
      name = "run-${name}";
      executable = true;
      destination = "/bin/run";
      text = ''
        #!${pkgs.runtimeShell}
        # ${name}: reads code from its standard input.
        if [ -z "''${COFFERDAM_ENVIRONMENT+inside}" ]; then
          if ! command -v ${quoted cofferdam} > /dev/null; then
            echo "${name}: there is no sandbox around this program, and no cofferdam on PATH to make one; nothing was run" >&2
            echo "hint: install cofferdam, and call it again" >&2
            exit 125
          fi
          mount=${quoted projectMount}
          export PROJECT_MOUNT="''${PROJECT_MOUNT:-$mount}"
          exec ${quoted cofferdam} eval ${variables} "$(cd -P -- "''${0%/*}/.." && pwd)" -
        fi
        export PATH=${quoted path}"''${PATH:+:$PATH}"
        ${pass}'';
    };
}
