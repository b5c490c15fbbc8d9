// Package auth binds bearer tokens to tenants: who may look up for which tenant, and who
// may report for which. A server without it takes everybody's word.
package auth
