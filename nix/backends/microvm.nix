# Virtual machines: not there yet, and said so where one is asked for. Nothing weaker takes their place.
{ pkgs }:

{
  mkEnvironment =
    { name, ... }:
    throw "The backend microvm is not there yet (sandbox ${name}); leave out `backend`, or name jail";
}
