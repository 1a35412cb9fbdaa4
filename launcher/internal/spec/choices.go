package spec

// Choices returns the values that a setting with the type of v can have, nil if it can have any.
func Choices(v any) []string {
	switch v.(type) {
	case Condition:
		return []string{"started", "healthy", "completed"}
	case IfUnavailable:
		return []string{"refuse", "warn"}
	case RollFailure:
		return []string{"pause", "rollback", "continue"}
	case Retry:
		return []string{"manual", "immediate", "exponential"}
	case RestartPolicy:
		return []string{"always", "on-failure", "never"}
	case LauncherDeath:
		return []string{"kill", "keep"}
	case Protocol:
		return []string{"auto", "grpc", "notify", "signals"}
	}
	return nil
}
