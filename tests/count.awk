# Reads the output of `ctest -V` and prints "passed failed skipped". A Criterion program counts as its tests, a script that
# closes with "N passed, N failed" as those, everything else as one. The names of what failed go to the file `failures`.
{
  line = $0
  if (match(line, /^[0-9]+: /)) {
    test = substr(line, 1, RLENGTH - 2) + 0
    text = substr(line, RLENGTH + 1)
    if (text ~ /Synthesis: Tested:/) {
      split(text, part, /[^0-9]+/)
      # [====] Synthesis: Tested: N | Passing: N | Failing: N | Crashing: N
      passed[test] += part[3]
      failed[test] += part[4] + part[5]
    } else if (text ~ /^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$/) {
      split(text, part, /[^0-9]+/)
      passed[test] += part[1]
      failed[test] += part[2]
      skipped[test] += part[3]
    }
  } else if (match(line, /Test +#[0-9]+: /)) {
    test = line
    sub(/.*Test +#/, "", test)
    name = test
    sub(/^[0-9]+: /, "", name)
    sub(/ .*/, "", name)
    test = test + 0
    good = line ~ /  +Passed  +/
    if (!(test in passed) && !(test in failed)) {
      if (line ~ /Skipped/) skipped[test] = 1
      else if (good) passed[test] = 1
      else failed[test] = 1
    } else if (!good && failed[test] == 0) {
      failed[test] = 1
    }
    if (failed[test] > 0) print name > failures
    all_passed += passed[test]
    all_failed += failed[test]
    all_skipped += skipped[test]
  }
}
END { print all_passed + 0, all_failed + 0, all_skipped + 0 }
