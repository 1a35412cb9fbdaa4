#!/usr/bin/env bash
# Checks the models, two at a time, and prints one line per run. Fails if a model that must hold does
# not, or if a control holds.
set -euo pipefail

if ! command -v spin >/dev/null; then
	echo "model: spin is not installed, skipped"
	[ -z "${CI:-}" ] || exit 1
	exit 0
fi

models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if command -v tcc >/dev/null; then compiler=tcc; else compiler='gcc -O0'; fi
export models work compiler

# one WANT MODEL [DEFINE...]: WANT is holds or fails.
one() {
	local want=$1 model=$2
	shift 2
	local dir result states
	dir=$(mktemp -d -p "$work")
	cp "$models"/*.pml "$dir"
	cd "$dir"
	# tcc needs a tenth of a second where gcc needs two. Compressing the states would take longer.
	# The result is read from what pan prints: spin and pan exit with 0 in almost every case.
	{ spin -a "$@" "$model.pml" && $compiler -w -DSAFETY -DSFH -DMEMLIM=2000 -o pan pan.c && ./pan -n -m1000000; } >out 2>&1 || true
	if grep -Eq 'search not completed|Search not completed|max search depth too small|out of memory|memory limit' out && ! grep -q 'errors: 1' out; then
		result=broken
	elif grep -q 'errors: 0' out; then
		result=holds
	elif grep -q 'errors: 1' out; then
		result=fails
	else
		result=broken
	fi
	states=$(sed -nE 's/^ *([0-9.e+]+) states, stored.*/\1/p' out)
	printf '%-10s %-50s %10s states  %-6s' "$model" "$*" "${states:-?}" "$result"
	if [ "$result" = "$want" ]; then
		echo
		rm -rf "$dir"
		return 0
	fi
	echo "  WANTED: it $want"
	tail -n 20 out
	return 1
}
export -f one

xargs -P 2 -I{} bash -c 'one {}' <<'RUNS'
holds inbox
holds inbox -DSTOPPERS=2
holds inbox -DPRODUCERS=3
holds inbox -DPRODUCERS=1 -DOFFLOAD
holds inbox -DPRODUCERS=1 -DOFFLOAD -DSTOPPERS=2
holds inbox -DPRODUCERS=1 -DQUIESCE
holds inbox -DPRODUCERS=1 -DSTOP_AFTER_POST
holds inbox -DPRODUCERS=0 -DOFFLOAD -DQUIESCE
holds inbox -DPRODUCERS=1 -DPARENT_STOP -DSTOPPERS=2
fails inbox -DCHECK_OUTSIDE
fails inbox -DEXIT_OUTSIDE
fails inbox -DLATE_STATE_CHANGE
fails inbox -DNO_WAKE
fails inbox -DPRODUCERS=1 -DSTOP_AFTER_POST -DWAKE_IF_EMPTY_LATE
fails inbox -DPRODUCERS=0 -DOFFLOAD -DNO_PROMISE
fails inbox -DPRODUCERS=0 -DOFFLOAD -DDELIVER_TWICE
fails inbox -DPRODUCERS=0 -DOFFLOAD -DCANCEL_WITHOUT_WAKE
fails inbox -DPRODUCERS=1 -DQUIESCE -DQUIET_WHILE_BUSY
fails inbox -DPRODUCERS=0 -DOFFLOAD -DQUIESCE -DIGNORE_PROMISED
fails inbox -DPRODUCERS=0 -DOFFLOAD -DCANCEL_EARLY
fails inbox -DPRODUCERS=0 -DPARENT_STOP -DLOOP_DOES_NOT_NOTIFY
fails inbox -DPRODUCERS=0 -DPARENT_STOP -DCOUNT_OUTSIDE
fails inbox -DPRODUCERS=0 -DPARENT_STOP -DIDLE_WITHOUT_GUARD
fails inbox -DPRODUCERS=0 -DSTOPPERS=2 -DFIRST_NOTIFIES
RUNS
