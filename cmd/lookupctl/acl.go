package main

import (
	"fmt"

	"inferencecache.io/lookuptier/ranking"
	"inferencecache.io/lookuptier/store"
)

// aclCmd prints what docs/security.md explains, for the names at hand.
type aclCmd struct {
	Component string `arg:"" enum:"pod,sidecar,operator" help:"pod, sidecar or operator (doctor and explain)."`
	User      string `placeholder:"NAME" help:"Name of the user. Empty = lookupd, kvsidecar or operator."`
	Tenant    string `placeholder:"NAME" help:"The sidecar's tenant."`
	Model     string `placeholder:"NAME" help:"The sidecar's model."`
	Shards    int    `default:"1" placeholder:"K" help:"Partitions of each model of a tenant (${default}), as everywhere in the tier."`
}

// Run writes one ACL SETUSER command.
func (c *aclCmd) Run(s *session) error {
	if c.Shards < 1 || c.Shards > 1024 {
		return usagef("--shards is %d: write 1 to 1024, the same as the lookup pods", c.Shards)
	}
	if c.Component == "sidecar" && (c.Tenant == "" || c.Model == "") {
		return usagef("acl sidecar needs --tenant and --model: its keys are theirs")
	}
	name, rules := "lookupd", store.PodACL()
	switch c.Component {
	case "sidecar":
		name, rules = "kvsidecar", store.SidecarACL(ranking.Scope{Tenant: c.Tenant, Model: c.Model}, c.Shards)
	case "operator":
		name, rules = "operator", store.OperatorACL()
	}
	if c.User != "" {
		name = c.User
	}
	_, err := fmt.Fprintln(s.out, store.SetUser(name, rules))
	return err
}
