// Package secrets reads certificates, passwords and other secrets from files and keeps
// them current: a mounted Secret is replaced while the process runs, by a link that is
// swung round or file by file, and nobody is to restart for it. What cannot be read or
// makes no sense never replaces what was good.
package secrets
