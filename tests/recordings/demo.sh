#!/bin/sh
# demo.sh PYTHONS COMMAND [ARG]...: runs a command as on a host named `demo`, in /srv/demo, with the CPython 3.12 of the folder
# PYTHONS under /opt/python3.12, so that recordings name nothing of the machine that made them. Needs root.
set -eu
version=$(cd "$1" && echo 3.12.*)
interpreter=$1/${version##* }
shift
mkdir -p /srv/demo /opt/python3.12
export interpreter
exec unshare --mount --uts sh -euc '
    hostname demo
    mount --bind "$interpreter" /opt/python3.12
    cd /srv/demo
    # Without LD_LIBRARY_PATH, the loader takes the libpython of the folder that the interpreter was built for.
    exec env --ignore-environment HOME=/srv/demo LANG=C.UTF-8 LD_LIBRARY_PATH=/opt/python3.12/lib \
        PATH=/srv/demo/bin:/opt/python3.12/bin:/usr/bin:/bin "$@"' sh "$@"
