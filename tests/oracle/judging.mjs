// How a judge goes about it: checks are run, what they find is printed, failures are counted.

// Of all checks, or of those named in `only` alone.
export const judgement = only => {
  let failures = 0
  const failed = words => {
    failures++
    console.log(words)
  }
  return {
    failed,
    // `checks`: by their names, functions that return what is wrong, or null.
    judge: (where, checks, ...given) => {
      for (const [check, run] of Object.entries(checks)) {
        if (only && !only.includes(check)) continue
        let found
        try { found = run(...given) } catch (error) { found = `it threw ${error.stack ?? error}` }
        if (found !== null) failed(`${where}: ${check}: no, ${found}`)
      }
    },
    // Prints the sum; the process exits 1 if anything failed.
    end: words => {
      console.log(`${words}, ${failures} failures`)
      process.exitCode = failures > 0 ? 1 : 0
    }
  }
}
