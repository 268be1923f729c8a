#!/usr/bin/env bash
# Installs what weft builds and runs with, from Debian 12's packages. Does nothing when all is there.
# (ocl-icd-opencl-dev: the CMake files of Debian's oneDNN look for OpenCL. weft does not use it.)
set -euo pipefail
packages=(g++ cmake ninja-build make pkg-config git python3 python3-pip
  libdnnl-dev ocl-icd-opencl-dev nlohmann-json3-dev libcli11-dev libspdlog-dev libfmt-dev libpcre2-dev
  libsqlite3-dev libzip-dev libxxhash-dev libssl-dev libedit-dev libyaml-cpp-dev libgtest-dev libgmock-dev libbenchmark-dev)
missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0
sudo=''
if [ "$(id -u)" -ne 0 ]; then
  sudo=sudo
  command -v sudo > /dev/null ||
    { echo "install-deps: needs root (or sudo) to install: ${missing[*]}" >&2; exit 1; }
fi
$sudo apt-get update -qq
DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq --no-install-recommends "${missing[@]}"
