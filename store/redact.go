package store

import "strings"

const hidden = "xxxxx"

// Redacted is a Redis URL without its secrets, for logs and errors. It also
// takes what ParseURL refuses, and hides whatever might be a password there.
func Redacted(raw string) string {
	scheme, rest, ok := cutScheme(raw)
	if ok {
		scheme += "://"
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
	hosts, sound := redactHosts(hosts)
	out := scheme + user + hosts
	if !sound {
		return out
	}
	if hasPath {
		out += "/" + path
	}
	if hasQuery {
		out += "?" + redactQuery(query)
	}
	return out + fragment
}

// cutScheme splits off what stands before "://", if that can be a scheme: otherwise
// it may be part of a password, and all of raw is the rest.
func cutScheme(raw string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(raw, "://")
	if !ok || strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz+") != "" {
		return "", raw, false
	}
	return scheme, rest, true
}

// redactHosts hides a port that is no number, and what follows: it may be a password
// whose "@host" was forgotten. Then it is not sound.
func redactHosts(hosts string) (shown string, sound bool) {
	list := strings.Split(hosts, ",")
	for i, host := range list {
		if strings.HasPrefix(host, "[") {
			continue
		}
		name, port, ok := strings.Cut(host, ":")
		if ok && strings.Trim(port, "0123456789") != "" {
			list[i] = name + ":" + hidden
			return strings.Join(list[:i+1], ","), false
		}
	}
	return hosts, true
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
