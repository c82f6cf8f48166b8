#!/bin/sh
# Brings back what backup.sh has saved, into a data folder without galleries: sh restore.sh FOLDER
set -eu
umask 077
from=${1:?which folder?}
data=${VICINAL_DATA_DIR:-$HOME/.vicinal}
if [ ! -d "$from/galleries" ]; then echo "restore.sh: '$from' is no backup" >&2; exit 1; fi
for name in galleries keys audit; do
    if [ -e "$data/$name" ]; then echo "restore.sh: '$data/$name' is there already" >&2; exit 1; fi
done
mkdir -p "$data"

# Keys first: a server that is started too early must not answer everybody.
for name in keys audit; do
    if [ -d "$from/$name" ]; then cp -Rp "$from/$name" "$data/"; fi
done
for archive in "$from"/galleries/*.tar; do
    if [ -e "$archive" ]; then
        name=${archive##*/}
        vicinal gallery import "${name%.tar}" "$archive"
    fi
done
while read -r alias gallery; do
    vicinal gallery alias "$alias" "$gallery" < /dev/null
done < "$from/aliases"
