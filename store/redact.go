package store

import "strings"

const hidden = "xxxxx"

// Redacted is a Redis URL without its secrets, for logs and errors. It also
// takes what ParseURL refuses, and hides whatever might be a password there.
func Redacted(raw string) string {
	scheme, rest, ok := strings.Cut(raw, "://")
	if ok {
		scheme += "://"
	} else {
		scheme, rest = "", raw
	}
	at := strings.LastIndexByte(rest, '@')
	if stop := strings.IndexAny(rest, "/?#"); stop >= 0 && at > stop {
		// An '@' in what should be path or parameters: nobody can say where a
		// password begins.
		return scheme + hidden
	}
	user := ""
	if at >= 0 {
		name, _, hasPassword := strings.Cut(rest[:at], ":")
		if user = name; hasPassword {
			user += ":" + hidden
		}
		user, rest = user+"@", rest[at+1:]
	}
	rest, fragment, hasFragment := strings.Cut(rest, "#")
	if hasFragment && fragment != "" {
		fragment = "#" + hidden
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	hosts, path, hasPath := strings.Cut(rest, "/")
	out := scheme + user + redactHosts(hosts)
	if hasPath {
		out += "/" + path
	}
	if hasQuery {
		out += "?" + redactQuery(query)
	}
	return out + fragment
}

// redactHosts hides a port that is no number: it may be a password whose
// "@host" was forgotten.
func redactHosts(hosts string) string {
	list := strings.Split(hosts, ",")
	for i, host := range list {
		if strings.HasPrefix(host, "[") {
			continue
		}
		name, port, ok := strings.Cut(host, ":")
		if ok && strings.Trim(port, "0123456789") != "" {
			list[i] = name + ":" + hidden
		}
	}
	return strings.Join(list, ",")
}

func redactQuery(query string) string {
	pairs := strings.Split(query, "&")
	for i, pair := range pairs {
		name, _, _ := strings.Cut(pair, "=")
		if strings.Contains(strings.ToLower(name), "pass") || strings.Contains(name, "%") {
			pairs[i] = name + "=" + hidden
		}
	}
	return strings.Join(pairs, "&")
}
