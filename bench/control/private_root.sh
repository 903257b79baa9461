#!/bin/sh
# Runs a program that reads /certs, without a /certs on this machine: private_root.sh NEW_ROOT CERTS COMMAND...
# Needs a mount namespace of its own (unshare --mount): NEW_ROOT gets all of /, and CERTS as /certs.
set -eu
root=$1 certs=$2
shift 2
mount -t tmpfs -o mode=755 tmpfs "$root"
for each in /*; do
  if [ "$each" = /certs ]; then continue; fi
  if [ -L "$each" ]; then cp -P "$each" "$root$each"; fi
  if [ -d "$each" ] && [ ! -L "$each" ]; then
    mkdir "$root$each"
    mount --rbind "$each" "$root$each"
  fi
done
mkdir "$root/certs"
mount --bind "$certs" "$root/certs"
exec chroot "$root" "$@"
