package scripts

// Texts are the scripts by name, as Redis is to get them: those that share the text of
// partition.lua have it in front. They are for writers in other languages, whose
// calls then have the same SHA-1 as ours.
func Texts() map[string]string {
	return map[string]string{
		"report":         reportScript.text,
		"evict":          evictScript.text,
		"clear":          clearScript.text,
		"stats":          statsScript.text,
		"head":           headScript.text,
		"sweep_begin":    sweepBeginScript.text,
		"sweep":          sweepScript.text,
		"sweep_end":      sweepEndScript.text,
		"catalog_file":   catalogFileScript.text,
		"catalog_census": catalogCensusScript.text,
		"layout":         layoutScript.text,
	}
}
