package dns01

import (
	"strings"
	"time"
)

type Options struct {
	RecursiveNameservers []string
}

type Client struct{}

type ChallengeOption func()

func NewClient(*Options) *Client { return &Client{} }

func SetDefaultClient(*Client) {}

func CondOptions(bool, ...ChallengeOption) ChallengeOption { return nil }

func DisableAuthoritativeNssPropagationRequirement() ChallengeOption { return nil }

func DisableRecursiveNSsPropagationRequirement() ChallengeOption { return nil }

func PropagationWait(time.Duration, bool) ChallengeOption { return nil }

func UnFqdn(name string) string { return strings.TrimSuffix(name, ".") }
