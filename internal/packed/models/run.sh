#!/usr/bin/env bash
# Checks the models, two at a time, and prints one line for each run. It fails if a model that must hold does not hold, or
# if a control, which must fail, holds. With arguments, it checks only the runs that contain all of them:
#
#	./run.sh announce NO_RECHECK
#
# If a run does not end as it should, and always with KEEP=1, the directory of the run is kept, with Spin's verifier and
# the trail of an error. docs/internals/debugging.md#spin explains how to read a trail.
set -euo pipefail

if ! command -v spin >/dev/null; then
	echo "model: spin is not installed, skipped"
	[ -z "${CI:-}" ] || exit 1
	exit 0
fi

models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
work=$(mktemp -d)
trap 'rm -f "$work"/{results,sizes,page}; rmdir "$work" 2>/dev/null || true' EXIT
export models work

# tcc compiles a verifier in a tenth of a second, gcc in three seconds and more. The verifier of tcc is slower by half a
# second for each million states, and few runs have so many.
if command -v tcc >/dev/null; then compiler=tcc; else compiler='gcc -O0'; fi
export compiler

# one WANT MODEL [DEFINE...]: WANT is holds or fails.
one() {
	local want=$1 model=$2
	shift 2
	local dir result states seconds start
	dir=$(mktemp -d -p "$work")
	cp -r "$models"/*.pml "$models"/protocol "$dir"
	cd "$dir"
	start=$(date +%s%N)
	# States are not compressed: COLLAPSE would take half the memory, but a third more time. -w26 makes the hash table large
	# enough for the run with the most states; with the default, that run takes a third more time.
	# The exit codes of spin and pan are 0 in almost every case, so the result is read from the output of pan.
	{ spin -a "$@" "$model.pml" && $compiler -w -DSAFETY -DSFH -DMEMLIM=6000 -o pan pan.c && ./pan -n -m1000000 -w26; } >out 2>&1 || true
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
	printf '%-10s %-56s %10s states  %-6s %3d.%d s' "$model" "$*" "${states:-?}" "$result" $((seconds / 10)) $((seconds % 10))
	if [ "$result" = "$want" ]; then
		if [ -n "${KEEP:-}" ]; then
			echo "  kept in $dir"
		else
			echo
			rm -rf "$dir"
		fi
		return 0
	fi
	echo "  WANTED: $want; kept in $dir"
	[ "$result" != broken ] || tail -n 20 out
	return 1
}
export -f one

# The longest runs come first, so that both processes end at about the same time.
RUNS=$(cat <<'EOF'
holds announce -DSTOPPED=1 -DMIDDLE_GUARD
holds completion -DLINKED -DDEPTH=2
holds stripes -DSTART_LINKED
holds stripes
holds stripes -DGUARDS=1 -DTRY -DSTART_LINKED
holds stripes -DGUARDS=0 -DTRY -DSTART_LINKED -DSTOP_MIDDLE
holds linking -DSWEEP
holds force -DFORCE -DWORK -DSWEEP
holds tryguard -DTRIES=2
holds force -DFORCE -DWORK -DSWEEP -DWALK_ONLY
holds warning -DWHERE=2
holds warning -DWHERE=1
holds warning -DMIDDLE
holds announce -DSTOPPED=2
holds announce -DSTOPPED=1 -DLEAF_GUARDS=1 -DMIDDLE_GUARD
holds linking
holds linking -DSTOPPED=2 -DCANCELS
holds linking -DSTOPPED=0 -DSIBLING
holds linking -DSTOPPED=0 -DAGAIN
holds linking -DSTOPPED=0 -DMIDDLE_GUARD
holds linking -DDEEP
holds linking -DSTOPPED=0 -DSWEEP -DCANCELS -DDEEP
holds completion -DLINKED -DDEPTH=1
holds completion -DDEPTH=1
holds tryguard
holds tryguard -DDEPTH=2
holds warning -DSWEEP
holds warning -DLINKED -DAGAIN
holds force -DSTOP -DCALL_DONE
holds force -DSTOP -DCALL_DONE -DSWEEP
holds force -DFORCE -DCALL_DONE
holds force -DFORCE -DSTOP
holds stripes -DGUARDS=0 -DTRY -DSTART_LINKED -DSWEEP
holds stripes -DGUARDS=1 -DSTART_LINKED -DSTOP_MIDDLE
holds stripes -DGUARDS=1 -DSTOP_MIDDLE
holds stripes -DGUARDS=1 -DCALL_DONE -DSWEEP
holds stripes -DGUARDS=1 -DSTART_LINKED -DCALL_DONE -DSWEEP
holds stripes -DGUARDS=1 -DSTART_LINKED -DSWEEP -DAGAIN
holds contexts -DSTOP0 -DASK=2
holds contexts -DSTOP1 -DASK=2
holds contexts -DSTOP1 -DASK=2 -DASKED=1
holds contexts -DASK=2
holds contexts -DSTOP0 -DSTOP1 -DREAD
holds contexts -DSTOP0 -DSTOP2 -DREAD
holds contexts -DDEADLINE -DSTOP1 -DSTOP2 -DREAD
holds contexts -DWATCH=2
holds contexts -DDEADLINE -DSTOP1 -DWATCH=2
holds contexts -DDEADLINE -DASK=1 -DWATCH=1
holds contexts -DSTOP0 -DSTOP1 -DASK=1 -DWATCH=1
holds forces
holds forces -DWORK1
holds forces -DREAD
holds forces -DHELD -DREAD
fails naive
fails announce -DEARLY_RETURN
fails announce -DANNOUNCE_FIRST
fails announce -DSEAL_PARENT_FIRST
fails announce -DNO_RECHECK
fails announce -DNO_UNDO
fails linking -DLINK_UNSEALED
fails linking -DLINK_ALONE
fails linking -DLINK_NO_BIT -DSWEEP
fails linking -DUNLINK_WITH_CHILDREN -DSWEEP
fails linking -DUNLINK_WITH_GUARDS -DSWEEP
fails completion -DLINKED -DDEPTH=1 -DRESOLVE_READS_FIRST
fails completion -DLINKED -DDEPTH=1 -DDONE_READS_FIRST
fails completion -DLINKED -DDEPTH=1 -DNO_WAIT
fails completion -DLINKED -DDEPTH=1 -DKEEP_CHANNEL
fails tryguard -DBARE_DECREMENT
fails tryguard -DCHECK_BEFORE_COUNT
fails tryguard -DSTOP_BEFORE_CASCADE
fails warning -DLINKED -DWARN_LATE
fails warning -DLINKED -DAGAIN -DWARNED_IS_DONE
fails warning -DWHERE=1 -DLINK_UNWARNED
fails warning -DWHERE=2 -DLINK_WARNED_LATE
fails warning -DWHERE=1 -DLIST_FIRST
fails force -DFORCE -DWORK -DCHECK_BEFORE_PIN
fails force -DFORCE -DWORK -DSWEEP -DWALK_ONLY -DUNLINK_PINNED
fails stripes -DGUARDS=1 -DSTART_LINKED -DSWEEP -DCONTROL -DNO_BIAS
fails stripes -DGUARDS=1 -DSTART_LINKED -DCONTROL -DGROW_LATE
fails stripes -DGUARDS=1 -DCONTROL -DGROW_UNLINKED
fails stripes -DGUARDS=1 -DSTART_LINKED -DCONTROL -DREAD_THEN_MARK
fails stripes -DGUARDS=1 -DSTART_LINKED -DCONTROL -DACQUIRE_NO_REPEAT
fails stripes -DGUARDS=1 -DSTART_LINKED -DCONTROL -DRELEASE_NO_REPEAT
fails stripes -DGUARDS=1 -DSTART_LINKED -DSWEEP -DCONTROL -DFOLD_UNMARKED
fails stripes -DGUARDS=1 -DSTART_LINKED -DCONTROL -DFOLD_LAST
fails stripes -DGUARDS=0 -DTRY -DSTART_LINKED -DCONTROL -DSTRIPE_PROVES
fails stripes -DGUARDS=0 -DTRY -DSTART_LINKED -DCONTROL -DWARN_LATE
fails contexts -DSTOP1 -DASK=1 -DASKED=1 -DLOSE_STOP
fails contexts -DASK=2 -DKEEP_LOSER
fails contexts -DSTOP1 -DSTOP2 -DREAD -DCAUSE_OF_PARENT
fails contexts -DDEADLINE -DSTOP1 -DREAD -DSHARE_RUNNING
fails contexts -DDEADLINE -DASK=1 -DWATCH=1 -DSYNC_AT_ONCE
fails contexts -DWATCH=2 -DKEEP_FUNCTION
fails forces -DREAD -DNO_STORE
fails forces -DNO_LOOK
fails forces -DSTORE_LATE
fails forces -DHELD -DOWN_CAUSE
EOF
)

# The runs with more than ten million states need half of the time of all runs. CI leaves them out: a run gives another
# result only if a model has changed.
LARGE=$(cat <<'EOF'
holds announce -DSTOPPED=1 -DMIDDLE_GUARD
holds completion -DLINKED -DDEPTH=2
holds stripes -DSTART_LINKED
holds stripes -DGUARDS=1 -DTRY -DSTART_LINKED
holds stripes -DGUARDS=0 -DTRY -DSTART_LINKED -DSTOP_MIDDLE
EOF
)
[ -z "${CI:-}" ] || RUNS=$(grep -vxFf <(echo "$LARGE") <<<"$RUNS")

# without_large leaves out the rows of the table of runs that CI leaves out.
without_large() { if [ -n "${CI:-}" ]; then grep -vE ' [0-9]{2},[0-9]{3},[0-9]{3} \|$'; else cat; fi; }

# chosen prints the runs that contain all of its arguments.
chosen() {
	local runs word
	runs=$RUNS
	for word; do
		runs=$(grep -F -- "$word" <<<"$runs") || { echo "model: no run contains $word" >&2; return 1; }
	done
	echo "$runs"
}

# sizes prints the table of the runs that hold, from the lines that the runs have printed.
sizes() {
	local model defines states
	printf '| model | defines | states |\n| --- | --- | --- |\n'
	sed -n 's/^holds //p' <<<"$RUNS" | LC_ALL=C sort -s -k1,1 | while read -r model defines; do
		states=$(sed -nE "s/^$model +$defines +([0-9.e+]+) states .*/\1/p" "$work/results")
		printf '| %s | %s | %s |\n' "$model" "$(sed -E 's/-D([^ ]+)/`\1`/g' <<<"$defines")" \
			"$(sed -E ':a; s/^([0-9]+)([0-9]{3})/\1,\2/; ta' <<<"$states")"
	done | sed 's/|  |/| |/'
}

write=
if [ "${1:-}" = -write ]; then
	write=1
	shift
fi
chosen "$@" | xargs -P 2 -I{} bash -c 'one {}' | tee "$work/results"
[ $# = 0 ] || exit 0
sizes >"$work/sizes"
if [ -n "$write" ]; then
	# Replaces the table in README.md.
	awk -v table="$work/sizes" '/^\| model \| defines \| states/ { while ((getline line <table) > 0) print line; old = 1 }
		!/^\|/ { old = 0 } !old' "$models/README.md" >"$work/page"
	cp "$work/page" "$models/README.md"
elif ! sed -n '/^| model | defines | states |$/,/^$/{/^$/!p}' "$models/README.md" | without_large | diff - "$work/sizes"; then
	echo "model: the table of sizes in README.md is not what the runs gave; to write it: internal/packed/models/run.sh -write" >&2
	exit 1
fi
