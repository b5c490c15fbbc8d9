package policies_test

import (
	"os"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"inferencecache.io/lookuptier/ranking"
)

func TestTheDocumentedExampleIsAGoodPolicy(t *testing.T) {
	page, err := os.ReadFile("../docs/policies.md")
	require.NoError(t, err)
	example := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(page)
	require.NotNil(t, example)
	set, err := parse(string(example[1]))
	require.NoError(t, err)
	require.Equal(t, ranking.Policy{
		EvictionTTL: 45 * time.Minute, MinimumPrefixTokens: 128, MinimumMatchedTokens: 256, RoutingFloorScore: 5,
		LookupTimeout: 20 * time.Millisecond, Affinity: true, ChainMatching: true, RequireChain: true, Eviction: ranking.EvictionLRU,
	}, *set.For("team-chat"))
}
