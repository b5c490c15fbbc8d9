#!/bin/sh
# Starts this pod's Redis or Sentinel behind whoever leads: as the other pods' Sentinels say, else the
# first of $PEERS.
#
#   join.sh redis|sentinel
#   PEERS  host names of all pods
#   ME     this pod's
#   DIR    a directory for what it writes
#   CONFIG the configuration of Redis that all share
#   PORT, SENTINEL_PORT, DOWN_AFTER (ms)  the same in all pods
#   BIND   the address to listen on; all of the pod's by default
set -eu
: "${PORT:=6379}" "${SENTINEL_PORT:=26379}" "${DOWN_AFTER:=5000}" "${BIND:=* -::*}"

leader() {
  for peer in $PEERS; do
    [ "$peer" != "$ME" ] || continue
    # The first line is the host; an error is no peer's name.
    said=$(timeout 2 redis-cli -h "$peer" -p "$SENTINEL_PORT" --raw sentinel get-master-addr-by-name lookup-tier 2>/dev/null | head -n 1)
    for known in $PEERS; do
      [ "$said" != "$known" ] || { echo "$said"; return; }
    done
  done
}

# A Sentinel refuses to start on a name that does not resolve yet.
resolved() {
  tries=60
  until getent ahosts "$1" >/dev/null; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || { echo "join: $1 does not resolve" >&2; exit 1; }
    sleep 1
  done
}

master=$(leader)
if [ "$1" = redis ]; then
  # If we led, we came back before the others noticed. We are empty now, and a leader that is empty empties
  # its replicas: give them the time to choose another.
  tries=$((DOWN_AFTER / 1000 * 4))
  while [ "$master" = "$ME" ] && [ "$tries" -gt 0 ]; do
    sleep 1
    tries=$((tries - 1))
    master=$(leader)
  done
fi
[ -n "$master" ] || master=${PEERS%% *}
resolved "$ME"
resolved "$master"
echo "join: $1 of $ME, behind $master"

case $1 in
redis)
  {
    echo "include $CONFIG"
    echo "bind $BIND"
    echo "port $PORT"
    echo "dir $DIR"
    echo "replica-announce-ip $ME"
    [ "$master" = "$ME" ] || echo "replicaof $master $PORT"
  } >"$DIR/redis.conf"
  exec redis-server "$DIR/redis.conf"
  ;;
sentinel)
  # Sentinel keeps what it learns in this file, and goes on from there if only it was restarted. Its id
  # outlives the pod: the others count every id they ever met when they ask for a majority.
  id=$(printf %s "$ME" | sha1sum | cut -c 1-40)
  [ -s "$DIR/sentinel.conf" ] || cat >"$DIR/sentinel.conf" <<END
bind $BIND
port $SENTINEL_PORT
dir $DIR
protected-mode no
sentinel myid $id
sentinel resolve-hostnames yes
sentinel announce-hostnames yes
sentinel announce-ip $ME
sentinel monitor lookup-tier $master $PORT 2
sentinel down-after-milliseconds lookup-tier $DOWN_AFTER
sentinel failover-timeout lookup-tier 30000
sentinel parallel-syncs lookup-tier 2
END
  exec redis-sentinel "$DIR/sentinel.conf"
  ;;
esac
