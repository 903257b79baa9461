"""The answer: frozen values. Of the API they know an object's `Key` and references as written; of Envoy they know nothing."""
