#!/usr/bin/env bash
# A session in terminals of 80×24 and 60×20, whose screens are to be looked at: train, Ctrl-C, resume, evaluate, certify.
#
#     scripts/terminal.sh > results/terminal.md        needs tmux, and saute on the path
set -eu

tmux() { command tmux -L "saute-$$" "$@"; }

screen() { # what is seen now, without the empty lines below it
  echo "$1"
  echo
  tmux capture-pane -p | sed -e 's/[[:space:]]*$//' -e 's/^/    /' | awk 'NF { for (; n; n--) print ""; print; next } { n++ }'
  echo
}

enter() { tmux send-keys "$1" Enter; }

ended() { # the last line is a prompt again, after a moment in which it may still be the former one
  sleep 1
  until tmux capture-pane -p | grep -v '^$' | tail -n 1 | grep -q '^\$$'; do sleep 0.5; done
}

session() {
  place=$(mktemp -d)
  tmux new-session -d -x "$1" -y "$2" "cd $place && PS1='$ ' bash --norc"
  echo "## $1 columns, $2 lines"
  echo
  enter "saute train pendulum --preset fast --seeds 2 --epochs 40 --snapshots 4 --out runs/a"
  sleep 6
  screen "Training has begun:"
  until [ "$(cat "$place/runs/a/metrics.jsonl" 2>/dev/null | wc -l)" -gt 4 ]; do sleep 0.5; done
  screen "Some epochs later:"
  tmux send-keys C-c
  ended
  screen "After Ctrl-C:"
  enter "clear; saute resume runs/a"
  ended
  screen "Continued, to its end:"
  for words in "evaluate runs/a --episodes 1000" "certify runs/a --episodes 3000" "plot trajectories runs/a" "runs runs" "resume runs/b"; do
    enter "clear; saute $words"
    ended
    screen "\`saute $words\`:"
  done
  tmux kill-server
  rm -r "$place"
}

echo "# What a session looks like"
echo
echo "Screens of \`scripts/terminal.sh\`: train, Ctrl-C, resume, evaluate, certify. Times are those of a machine with other work."
echo
session 80 24
session 60 20
