// Sends POST requests with fetch, eight at a time, until a response says that it is the last one, for two
// minutes at most.
const url = process.argv[2]
const end = Date.now() + 120_000
let sent = 0, failed = 0, first = '', ended = false
await Promise.all(Array.from({ length: 8 }, async () => {
	while (!ended && Date.now() < end) {
		sent++
		try {
			const response = await fetch(url, { method: 'POST', body: 'hello' })
			const text = await response.text()
			if (response.status !== 200) throw new Error(`status ${response.status}`)
			ended ||= text === 'last'
		} catch (e) {
			failed++
			first ||= String(e.cause ?? e)
		}
	}
}))
console.log(sent, failed, first)
