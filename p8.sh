. /tmp/t/red/env.sh; cd tests
export PYOBS_BIN=/tmp/t/red/pyobs-d
flock -w 45 /tmp/t/run.lock timeout 60 nice -n 19 sh -c "date; /tmp/t/red/rt-e calls_again_on_3.12; date" > /tmp/t/red/p8.txt 2>&1
