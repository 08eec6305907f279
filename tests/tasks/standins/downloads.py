"""Files of plain web servers: `data.txt`, and a script that installs something."""

FILES = {
    "/": ("text/html", "<!doctype html><title>stand-in</title><p>some data</p>\n"),
    "/data.txt": ("text/plain", "some data\n"),
    "/install.sh": ("text/x-shellscript", "echo installed >installed\n"),
}


def start(_base):
    return answer


def answer(request):
    kind, content = FILES.get(request.path, ("text/plain", None))
    if content is None:
        return 404, {"Content-Type": kind}, "no such file\n"
    return 200, {"Content-Type": kind}, content
