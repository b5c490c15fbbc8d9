package tracing

import (
	"encoding/pem"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// enabled asks with a collector and these variables, name=value.
func enabled(t *testing.T, variables ...string) error {
	t.Helper()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
	for _, v := range variables {
		name, value, _ := strings.Cut(v, "=")
		t.Setenv(name, value)
	}
	on, err := Enabled()
	require.Equal(t, err == nil, on)
	return err
}

func authority(t *testing.T) string {
	t.Helper()
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
	return file
}

func TestAVariableThatMakesNoSenseIsRefusedInOneLine(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	require.NoError(t, os.WriteFile(text, []byte("no PEM"), 0o600))
	for _, c := range []struct{ variable, want string }{
		{"OTEL_BSP_MAX_QUEUE_SIZE=-4", `is "-4": write a number of spans, from 1 to 1000000`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=0", `is "0": write`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=abc", `is "abc": write`},
		{"OTEL_BSP_MAX_QUEUE_SIZE=9000000000000000000", "write a number of spans"},
		{"OTEL_BSP_MAX_EXPORT_BATCH_SIZE=-1", `is "-1": write a number of spans`},
		{"OTEL_BSP_SCHEDULE_DELAY=abc", `is "abc": write milliseconds without a unit`},
		{"OTEL_BSP_SCHEDULE_DELAY= 5", `is " 5": write`},
		{"OTEL_BSP_EXPORT_TIMEOUT=30s", `is "30s": write milliseconds without a unit`},
		{"OTEL_EXPORTER_OTLP_TIMEOUT=5s", `is "5s": write milliseconds without a unit`},
		{"OTEL_EXPORTER_OTLP_TRACES_TIMEOUT=-1", `is "-1": write milliseconds`},
		{"OTEL_EXPORTER_OTLP_HEADERS=secret", "has no header as number 1: write name=value"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=b,secret", "has no header as number 2"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a b=secret", "has no header as number 1"},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=secret%0A", ""},
		{"OTEL_EXPORTER_OTLP_HEADERS=a=se%0Acret", "has no header as number 1"},
		{"OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=secret%zz", "has no header as number 1"},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=/nope", `is "/nope", which cannot be read (no such file or directory)`},
		{"OTEL_EXPORTER_OTLP_TRACES_CERTIFICATE=/no\npe", `is "/no\npe", which cannot be read`},
		{"OTEL_EXPORTER_OTLP_CERTIFICATE=" + text, "which has no certificate"},
		{"OTEL_EXPORTER_OTLP_CLIENT_KEY=/nope", "is set and OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE is not"},
		{"OTEL_EXPORTER_OTLP_TRACES_CLIENT_CERTIFICATE=/nope", "is set and OTEL_EXPORTER_OTLP_TRACES_CLIENT_KEY is not"},
		{"OTEL_EXPORTER_OTLP_COMPRESSION=brotli", `is "brotli": write gzip or none`},
		{"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=GZIP", `is "GZIP": write gzip or none`},
		{"OTEL_EXPORTER_OTLP_INSECURE=yes", `is "yes": write true or false`},
		{"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=x", `is "x": write a whole number, or -1 for no limit`},
		{"OTEL_LINK_ATTRIBUTE_COUNT_LIMIT=-2", `is "-2": write a whole number`},
	} {
		t.Run(c.variable, func(t *testing.T) {
			err := enabled(t, c.variable)
			if c.want == "" {
				require.NoError(t, err)
				return
			}
			name, _, _ := strings.Cut(c.variable, "=")
			require.ErrorContains(t, err, name+" ")
			require.ErrorContains(t, err, c.want)
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "secret")
		})
	}
}

func TestHalfAPairOfFilesIsNoCertificate(t *testing.T) {
	file := authority(t)
	cert := "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE=" + file
	require.ErrorContains(t, enabled(t, cert, "OTEL_EXPORTER_OTLP_CLIENT_KEY=/nope"), `OTEL_EXPORTER_OTLP_CLIENT_KEY is "/nope", which cannot be read`)
	require.ErrorContains(t, enabled(t, cert, "OTEL_EXPORTER_OTLP_CLIENT_KEY="+file), "are no pair")
}

func TestVariablesThatMakeSenseAreTaken(t *testing.T) {
	require.NoError(t, enabled(t,
		"OTEL_BSP_MAX_QUEUE_SIZE=64", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE=16", "OTEL_BSP_SCHEDULE_DELAY=1", "OTEL_BSP_EXPORT_TIMEOUT=30000",
		"OTEL_EXPORTER_OTLP_TIMEOUT= 5000 ", "OTEL_EXPORTER_OTLP_HEADERS=Authorization=Bearer%20a==, x-of=", "OTEL_EXPORTER_OTLP_COMPRESSION=gzip",
		"OTEL_EXPORTER_OTLP_TRACES_COMPRESSION=none", "OTEL_EXPORTER_OTLP_INSECURE=true", "OTEL_EXPORTER_OTLP_CERTIFICATE="+authority(t),
		"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT=-1", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT=0"))
}
