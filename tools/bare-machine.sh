#!/usr/bin/env bash
# Runs a command in a clean clone of the current commit inside a bare Debian 12 root, where nothing is
# installed but apt, ca-certificates, git and make: what a newcomer's machine has. Needs root.
#   tools/bare-machine.sh make demo          tools/bare-machine.sh 'make demo && make test'
#   tools/bare-machine.sh --prepare          makes the root only; its status says whether that can be done
# The root is bootstrapped once and kept in ${WEFT_BARE:-/var/tmp/weft-bare}; every run gets a fresh copy.
# ../shared is beside the clone, as it is beside the project. Exit status: the command's.
set -euo pipefail
[ $# -gt 0 ] || { sed -n '2,7p' "$0"; exit 2; }
top=$(git rev-parse --show-toplevel)
shared=$(cd "$top/../shared" 2>/dev/null && pwd || true)
cache=${WEFT_BARE:-/var/tmp/weft-bare}
base=$cache/base

no() { echo "bare-machine: $1" >&2; exit 1; }
[ "$(id -u)" -eq 0 ] || no "needs root"
unshare -m true 2>/dev/null || no "this machine grants no mount namespace"
command -v debootstrap >/dev/null ||
  apt-get install -y -qq --no-install-recommends debootstrap >/dev/null 2>&1 || no "no debootstrap here"
mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9  # two runs at once would bootstrap into one folder
if [ ! -e "$base/.whole" ]; then
  rm -rf "$base"
  debootstrap --variant=minbase --include=ca-certificates,git,make bookworm "$base" >"$cache/debootstrap.log" 2>&1 ||
    { tail -5 "$cache/debootstrap.log" >&2; no "debootstrap failed"; }
  touch "$base/.whole"
fi
flock -u 9
[ "$1" != --prepare ] || exit 0

run=$(mktemp -d "$cache/run.XXXXXX")
trap 'rm -rf --one-file-system "$run"' EXIT
cp -a "$base/." "$run/"
# The network, registries and certificates as this machine has them; nothing else comes along.
for f in /etc/resolv.conf /etc/hosts /etc/pip.conf; do [ ! -e "$f" ] || cp -L "$f" "$run$f"; done
cp -r /etc/apt/apt.conf.d/. "$run/etc/apt/apt.conf.d/"
rm -f "$run"/etc/apt/apt.conf.d/*packagekit* "$run"/etc/apt/apt.conf.d/*appstream*
rm -f "$run/etc/apt/sources.list"
cp -r /etc/apt/sources.list* "$run/etc/apt/" 2>/dev/null || true
mkdir -p "$run/usr/share/keyrings"
cp -n /usr/share/keyrings/debian-archive-* "$run/usr/share/keyrings/" 2>/dev/null || true
cp -L /etc/ssl/certs/ca-certificates.crt "$run/etc/ssl/certs/ca-certificates.crt"
for links in ${PIP_FIND_LINKS:-}; do
  [ ! -d "$links" ] || { mkdir -p "$run$(dirname "$links")"; cp -r "$links" "$run$links"; }
done
# The clone may belong to somebody else than root.
export GIT_CONFIG_COUNT=1 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*'
git clone -q "$top" "$run/root/weft"

keep=$(env | grep -E '^(PIP_|https?_proxy=|HTTPS?_PROXY=|no_proxy=|NO_PROXY=|SSL_CERT)' || true)
mapfile -t kept <<<"$keep"
[ -n "$keep" ] || kept=()
export run shared
unshare -m bash -c '
  mount --bind "$run" "$run"  # a root that is a mount point can have mount namespaces of its own
  cd "$run"
  mount -t proc proc "$run/proc"
  mount --rbind /dev "$run/dev"
  mount --make-rslave "$run/dev"
  if [ -n "$shared" ]; then
    mkdir -p "$run/root/shared"
    mount --bind -o ro "$shared" "$run/root/shared"
  fi
  command="cd /root/weft && $1"
  shift
  exec chroot "$run" env -i HOME=/root TERM=dumb LC_ALL=C.UTF-8 \
    PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@" bash -c "$command"
' bash "$*" "${kept[@]}"
