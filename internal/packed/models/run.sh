#!/usr/bin/env bash
# Checks the models, two at a time: one line per run. Fails where a model that must hold does not, or a control that
# must not hold does.
set -euo pipefail

if ! command -v spin >/dev/null; then
	echo "model: spin is not installed, skipped"
	[ -z "${CI:-}" ] || exit 1
	exit 0
fi

models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export models work

# one WANT MODEL [DEFINE...]: WANT is holds or fails.
one() {
	local want=$1 model=$2
	shift 2
	local dir result states seconds start
	dir=$(mktemp -d -p "$work")
	cp "$models"/*.pml "$dir"
	cd "$dir"
	start=$(date +%s%N)
	# Optimizing the verifier takes gcc ten seconds for each of the larger models, and saves less than that where the
	# search is short.
	local optimize=-O0
	case "$want $model $*" in
	*GUARDS=1*) ;;
	"holds line "* | "holds done "* | "holds fold "* | "holds warn "*) optimize=-O2 ;;
	esac
	# States are kept as they are: to compress them (COLLAPSE) takes half the memory and a third more time.
	# The result is read from what pan prints: spin and pan exit with 0 in almost every case.
	{ spin -a "$@" "$model.pml" && gcc $optimize -w -DSAFETY -DSFH -DMEMLIM=6000 -o pan pan.c && ./pan -n -m1000000; } >out 2>&1 || true
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
	seconds=$(( ($(date +%s%N) - start) / 100000000 ))
	printf '%-10s %-50s %10s states  %-6s %3d.%d s' "$model" "$*" "${states:-?}" "$result" $((seconds / 10)) $((seconds % 10))
	if [ "$result" = "$want" ]; then
		echo
		rm -rf "$dir"
		return 0
	fi
	echo "  WANTED: it $want"
	[ "$result" != broken ] || tail -n 20 out
	return 1
}
export -f one

# The long ones come first, so that the two lanes end together.
xargs -P 2 -I{} bash -c 'one {}' <<'RUNS'
holds line -DSTOPPED=1 -DMID
holds done -DLINKED -DDEPTH=2
holds registry -DSWEEP
holds force -DFORCE -DPINS -DSWEEP
holds fold -DKNOWN
holds fold
holds try -DTRIES=2
holds force -DFORCE -DPINS -DSWEEP -DWALK_ONLY
holds warn -DWHERE=2
holds warn -DWHERE=1
holds warn -DMIDDLE
holds line -DSTOPPED=2
holds line -DSTOPPED=1 -DLEAFS=1 -DMID
holds registry
holds registry -DWHO=2 -DCANCELS
holds registry -DWHO=0 -DSIBLING
holds registry -DWHO=0 -DAGAIN
holds registry -DWHO=0 -DPASSER
holds registry -DDEEP
holds registry -DWHO=0 -DSWEEP -DCANCELS -DDEEP
holds done -DLINKED -DDEPTH=1
holds done -DDEPTH=1
holds try
holds try -DDEPTH=2
holds warn -DSWEEP
holds warn -DLINKED -DAGAIN
holds look
holds look -DAGAIN
holds force -DSTOP -DASK
holds force -DSTOP -DASK -DSWEEP
holds force -DFORCE -DASK
holds force -DFORCE -DSTOP
holds fold -DGUARDS=1 -DKNOWN -DOTHER
holds fold -DGUARDS=1 -DOTHER
holds fold -DGUARDS=1 -DASK -DSWEEP
holds fold -DGUARDS=1 -DKNOWN -DASK -DSWEEP
holds fold -DGUARDS=1 -DKNOWN -DSWEEP -DAGAIN
fails naive
fails line -DEARLY_RETURN
fails line -DANNOUNCE_FIRST
fails line -DSEAL_PARENT_FIRST
fails line -DNO_RECHECK
fails line -DNO_UNDO
fails registry -DJOIN_UNSEALED
fails registry -DJOIN_ALONE
fails registry -DJOIN_NO_KIN -DSWEEP
fails registry -DDROP_KIN -DSWEEP
fails registry -DDROP_BUSY -DSWEEP
fails done -DLINKED -DDEPTH=1 -DCLOSE_WHATEVER
fails done -DLINKED -DDEPTH=1 -DCHECK_FIRST
fails done -DLINKED -DDEPTH=1 -DNO_PASS
fails done -DLINKED -DDEPTH=1 -DKEEP_CHANNEL
fails try -DBARE
fails try -DCHECK_BEFORE_COUNT
fails try -DHASTY
fails warn -DLINKED -DWARN_LATE
fails warn -DLINKED -DAGAIN -DWARNED_IS_DONE
fails warn -DWHERE=1 -DJOIN_UNWARNED
fails warn -DWHERE=1 -DLIST_FIRST
fails look -DCHECK_OUTSIDE
fails look -DKNOWN_FIRST
fails look -DPARENT_ONLY
fails look -DNO_MARK
fails look -DRAISE_LATE
fails look -DAGAIN -DEMPTY_IS_RAISED
fails look -DSWEEP_DOWN
fails force -DFORCE -DPINS -DCHECK_BEFORE_PIN
fails force -DFORCE -DPINS -DSWEEP -DWALK_ONLY -DDROP_PINNED
fails fold -DGUARDS=1 -DKNOWN -DSWEEP -DCONTROL -DNO_BIAS
fails fold -DGUARDS=1 -DKNOWN -DCONTROL -DGROW_LATE
fails fold -DGUARDS=1 -DCONTROL -DGROW_LOOSE
fails fold -DGUARDS=1 -DKNOWN -DCONTROL -DTAKE_THEN_SEAL
fails fold -DGUARDS=1 -DKNOWN -DCONTROL -DACQUIRE_ONCE
fails fold -DGUARDS=1 -DKNOWN -DCONTROL -DRELEASE_ONCE
fails fold -DGUARDS=1 -DKNOWN -DSWEEP -DCONTROL -DGATHER_UNMARKED
fails fold -DGUARDS=1 -DKNOWN -DCONTROL -DFOLD_LAST
RUNS
