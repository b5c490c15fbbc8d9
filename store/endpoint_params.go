package store

import (
	"fmt"
	"sort"
	"strconv"
	"time"
)

func (e *Endpoint) params(v map[string]string) error {
	names := make([]string, 0, len(v))
	for name := range v {
		names = append(names, name)
	}
	sort.Strings(names) // the same URL is refused with the same words each time
	clusterGiven := false
	for _, name := range names {
		value, err := v[name], error(nil)
		switch name {
		case "cluster":
			clusterGiven = true
			e.Cluster, err = boolParam(name, value)
		case "master_name":
			if e.MasterName = value; value == "" {
				err = fmt.Errorf("master_name is empty: write the name the Sentinels use, such as master_name=mymaster")
			}
		case "sentinel_username":
			e.SentinelUsername = value
		case "sentinel_password":
			e.SentinelPassword = value
		case "ca_file":
			e.CAFile = value
		case "cert_file":
			e.CertFile = value
		case "key_file":
			e.KeyFile = value
		case "server_name":
			e.ServerName = value
		case "skip_verify":
			e.SkipVerify, err = boolParam(name, value)
		case "client_name":
			e.ClientName = value
		case "protocol":
			if e.Protocol, err = intParam(name, value, 2); err == nil && e.Protocol > 3 {
				err = fmt.Errorf("protocol=%q: write 2 or 3", value)
			}
		case "pool_size":
			e.PoolSize, err = intParam(name, value, 1)
		case "min_idle_conns":
			e.MinIdleConns, err = intParam(name, value, 0)
		case "max_retries":
			var n int
			n, err = intParam(name, value, 0)
			e.MaxRetries = &n
		case "dial_timeout":
			e.DialTimeout, err = durationParam(name, value)
		case "read_timeout":
			e.ReadTimeout, err = durationParam(name, value)
		case "write_timeout":
			e.WriteTimeout, err = durationParam(name, value)
		default:
			err = fmt.Errorf("unknown parameter %q: known are cluster, master_name, sentinel_username, sentinel_password, "+
				"ca_file, cert_file, key_file, server_name, skip_verify, client_name, protocol, pool_size, min_idle_conns, "+
				"max_retries, dial_timeout, read_timeout, write_timeout, and db with unix://", name)
		}
		if err != nil {
			return err
		}
	}
	return e.agree(clusterGiven)
}

// agree refuses parts that exclude one another.
func (e *Endpoint) agree(clusterGiven bool) error {
	switch {
	case e.MasterName != "" && e.Cluster:
		return fmt.Errorf("cluster=true and master_name exclude each other: write master_name for Sentinel, cluster=true for a Cluster")
	case e.MasterName == "" && (e.SentinelUsername != "" || e.SentinelPassword != ""):
		return fmt.Errorf("sentinel credentials without master_name: add master_name=mymaster, or remove them")
	case e.MasterName == "" && len(e.Addrs) > 1 && clusterGiven && !e.Cluster:
		return fmt.Errorf("several hosts with cluster=false: write one host, or remove cluster=false")
	case !e.TLS && (e.CAFile != "" || e.CertFile != "" || e.KeyFile != "" || e.ServerName != "" || e.SkipVerify):
		return fmt.Errorf("TLS parameters without TLS: write rediss://")
	case (e.CertFile == "") != (e.KeyFile == ""):
		return fmt.Errorf("cert_file and key_file go together: write both or none")
	case e.SkipVerify && (e.CAFile != "" || e.ServerName != ""):
		return fmt.Errorf("skip_verify=true ignores ca_file and server_name: remove it, or them")
	}
	if e.MasterName == "" && len(e.Addrs) > 1 {
		e.Cluster = true
	}
	if e.Cluster && e.DB != 0 {
		return fmt.Errorf("a Cluster has database 0 only: remove /%d", e.DB)
	}
	return nil
}

func boolParam(name, value string) (bool, error) {
	switch value {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, fmt.Errorf("%s=%q: write true or false", name, value)
}

func intParam(name, value string, least int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least {
		return 0, fmt.Errorf("%s=%q: write a whole number, at least %d", name, value, least)
	}
	return n, nil
}

func durationParam(name, value string) (time.Duration, error) {
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return 0, fmt.Errorf("%s=%q: write a duration above 0, such as 500ms or 2s", name, value)
	}
	return d, nil
}
