# The flake: packages, the command as an app, what builds environments out of Nix packages, and its checks.
# What stands in ./nix does the work, for any package set; nothing here decides how an environment runs.
{
  description = "Runs code that nobody has vetted, walled in, and says exactly what happened";

  inputs.nixpkgs.url = "github:NixOS/nixpkgs/nixos-unstable";

  outputs =
    { self, nixpkgs }:
    let
      systems = [
        "x86_64-linux"
        "aarch64-linux"
      ];
      on =
        system:
        import ./nix {
          pkgs = nixpkgs.legacyPackages.${system} or (throw "Unknown system: ${system}");
          source = self;
        };
      each =
        make:
        builtins.listToAttrs (
          map (system: {
            name = system;
            value = make (on system);
          }) systems
        );
      # An environment is for the system that its packages are for.
      systemOf =
        packages:
        let
          known = builtins.filter (package: package ? system) packages;
        in
        if known == [ ] then builtins.head systems else (builtins.head known).system;
    in
    {
      lib = {
        # An environment of these packages: a directory with bin/run and metadata.json.
        mkSandbox = arguments: (on (systemOf arguments.packages)).mkSandbox arguments;

        # The same two for a package set of the caller's own.
        on = pkgs: { inherit (import ./nix { inherit pkgs; source = self; }) mkSandbox mkServer; };

        # The MCP server with python, shell and node bundled, and the environments of this configuration file:
        # `mkServer FILE`, for the system that evaluates it or else the first; `mkServer SYSTEM FILE` for that system.
        mkServer =
          argument:
          if builtins.elem argument systems then
            configPath: (on argument).mkServer configPath
          else
            (on (builtins.currentSystem or (builtins.head systems))).mkServer argument;
      };

      packages = each (ours: {
        default = ours.cofferdam;
        inherit (ours) cofferdam testSandbox;
      });

      apps = each (ours: {
        default = {
          type = "app";
          program = "${ours.cofferdam}/bin/cofferdam";
        };
      });

      checks = each (ours: ours.checks);
    };
}
