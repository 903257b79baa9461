package log

func SetDefault(any) {}
