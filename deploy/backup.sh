#!/bin/sh
# Saves a data folder while its server runs and changes it: sh backup.sh FOLDER
#
# FOLDER is new and appears when it is whole. It holds galleries/NAME.tar with the searches that are kept, aliases,
# keys/ and audit/.
# Not in it: jobs, bundles, photos, and the settings. See docs/operations.md.
set -eu
umask 077
to=${1:?which folder?}
data=${VICINAL_DATA_DIR:-$HOME/.vicinal}
if [ -e "$to" ]; then echo "backup.sh: '$to' is there already" >&2; exit 1; fi
if [ ! -d "$data/galleries" ]; then echo "backup.sh: no galleries in '$data'" >&2; exit 1; fi
mkdir -p "$to.partial/galleries"
trap 'rm -rf "$to.partial"' EXIT

# First of all: a gallery that an alias gets meanwhile may be one that is not saved any more.
for path in "$data"/galleries/*; do
    if [ -L "$path" ]; then echo "${path##*/} $(readlink "$path")"; fi
done > "$to.partial/aliases"
for name in keys audit; do
    if [ -d "$data/$name" ]; then cp -Rp "$data/$name" "$to.partial/"; fi
done
for path in "$data"/galleries/*; do
    # Without it a gallery is not ready: its first index job has not ended.
    if [ ! -L "$path" ] && [ -e "$path/active.json" ]; then
        vicinal gallery export "${path##*/}" --searches --output "$to.partial/galleries/${path##*/}.tar"
    fi
done
mv "$to.partial" "$to"
