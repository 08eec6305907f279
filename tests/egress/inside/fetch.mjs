// Fetches one URL with Node's own fetch, which ignores proxy variables; prints what it is told.
const answer = await fetch(process.argv[2], { signal: AbortSignal.timeout(8000) })
process.stdout.write(await answer.text())
