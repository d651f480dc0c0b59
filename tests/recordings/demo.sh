#!/bin/sh
# demo.sh PYTHON COMMAND [ARG]...: runs a command as on a host named `demo`, in /srv/demo, with a copy of the CPython in the folder
# PYTHON under /opt/python3.12, so that recordings name nothing of the machine that made them. Needs root.
set -eu
if [ ! -d /opt/python3.12 ]; then
    cp -a "$1" /opt/python3.12
    # Debugging information names the folder in which the interpreter was built.
    find /opt/python3.12 -type f \( -name '*.so*' -o -name python3.12 \) -exec strip --strip-debug {} +
fi
shift
mkdir -p /srv/demo
exec unshare --uts sh -euc '
    hostname demo
    cd /srv/demo
    # Without LD_LIBRARY_PATH, the loader takes the libpython of the folder that the interpreter was built for.
    exec env --ignore-environment HOME=/srv/demo TMPDIR=/srv/demo LANG=C.UTF-8 LD_LIBRARY_PATH=/opt/python3.12/lib \
        PATH=/srv/demo/bin:/opt/python3.12/bin:/usr/bin:/bin "$@"' sh "$@"
