package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"os"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
)

// transportFlags say how pods are spoken to.
type transportFlags struct {
	TLS           bool   `name:"tls" group:"connection" help:"Speak TLS to pods; given by any other --tls flag too."`
	TLSCAFile     string `name:"tls-ca-file" group:"connection" placeholder:"FILE" help:"PEM of the authorities that pods' certificates come from; none = the system's."`
	TLSCertFile   string `name:"tls-cert-file" group:"connection" placeholder:"FILE" help:"PEM of the certificate to show, for pods that ask for one."`
	TLSKeyFile    string `name:"tls-key-file" group:"connection" placeholder:"FILE" help:"PEM of its key."`
	TLSServerName string `name:"tls-server-name" group:"connection" placeholder:"NAME" help:"Name in the pods' certificate, if it is not the address."`
	TokenFile     string `group:"connection" placeholder:"FILE" help:"File of the bearer token for pods that ask for one."`
	TokenInClear  bool   `group:"connection" help:"Send the token without TLS, where the network may see it."`
}

// options are those of a connection to a pod.
func (f *transportFlags) options() ([]grpc.DialOption, error) {
	encrypted := f.TLS || f.TLSCAFile+f.TLSCertFile+f.TLSKeyFile+f.TLSServerName != ""
	transport := insecure.NewCredentials()
	if encrypted {
		conf, err := f.config()
		if err != nil {
			return nil, err
		}
		transport = credentials.NewTLS(conf)
	}
	options := []grpc.DialOption{grpc.WithTransportCredentials(transport)}
	if f.TokenFile == "" {
		return options, nil
	}
	if !encrypted && !f.TokenInClear {
		return nil, usagef("--token-file needs --tls; add --token-in-clear if the network may see the token")
	}
	text, err := os.ReadFile(f.TokenFile)
	if err != nil {
		return nil, usagef("--token-file: %v", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return nil, usagef("--token-file %s is empty; write the token into it", f.TokenFile)
	}
	return append(options, grpc.WithPerRPCCredentials(bearer{token: token, encrypted: encrypted})), nil
}

func (f *transportFlags) config() (*tls.Config, error) {
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: f.TLSServerName}
	if f.TLSCAFile != "" {
		pem, err := os.ReadFile(f.TLSCAFile)
		if err != nil {
			return nil, usagef("--tls-ca-file: %v", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, usagef("--tls-ca-file %s holds no certificate; write PEM blocks of type CERTIFICATE", f.TLSCAFile)
		}
	}
	if (f.TLSCertFile == "") != (f.TLSKeyFile == "") {
		return nil, usagef("--tls-cert-file and --tls-key-file go together")
	}
	if f.TLSCertFile != "" {
		pair, err := tls.LoadX509KeyPair(f.TLSCertFile, f.TLSKeyFile)
		if err != nil {
			return nil, usagef("--tls-cert-file and --tls-key-file: %v", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	return conf, nil
}

// bearer puts the token into each call.
type bearer struct {
	token     string
	encrypted bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + b.token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return b.encrypted }
