package main

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/tls"
	"encoding/base64"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
)

var (
	smallBody = bytes.Repeat([]byte("x"), small)
	largeBody = bytes.Repeat([]byte("x"), large)
)

// Backends starts all of them: h1 (HTTP/1.1 and WebSocket), close (a full handshake for each request), h2 (HTTP/2 and gRPC,
// and HTTP/1.1 for who cannot) and echo (1 KiB for 1 KiB, without HTTP).
func backends(certificate, key string) (map[string]int, error) {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return nil, err
	}
	config := func(protocols ...string) *tls.Config {
		return &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: protocols, MinVersion: tls.VersionTLS13}
	}
	ports := map[string]int{}
	listen := func(name string) net.Listener {
		found, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			fail(err.Error())
		}
		ports[name] = found.Addr().(*net.TCPAddr).Port
		return found
	}
	full := config("http/1.1")
	full.SessionTicketsDisabled = true
	go accept(tls.NewListener(listen("h1"), config("http/1.1")), func(c net.Conn) { answer(c, false) })
	go accept(tls.NewListener(listen("close"), full), func(c net.Conn) { answer(c, true) })
	go accept(tls.NewListener(listen("echo"), config()), echo)
	server := &http.Server{Handler: http.HandlerFunc(handle), TLSConfig: config("h2", "http/1.1"), ErrorLog: log.New(io.Discard, "", 0)}
	server.Protocols = new(http.Protocols)
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetHTTP2(true)
	go server.ServeTLS(listen("h2"), "", "")
	return ports, nil
}

func accept(listener net.Listener, with func(net.Conn)) {
	for {
		connection, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer connection.Close()
			with(connection)
		}()
	}
}

// Answer speaks just enough HTTP/1.1 for a proxy that sends well-formed requests without bodies.
func answer(connection net.Conn, once bool) {
	reader := bufio.NewReaderSize(connection, 4096)
	head := func(length int) []byte {
		ending := ""
		if once {
			ending = "connection: close\r\n"
		}
		return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\ncontent-length: %d\r\n%s\r\n", length, ending)
	}
	short, long := append(head(small), smallBody...), append(head(large), largeBody...)
	for {
		first, err := reader.ReadSlice('\n')
		if err != nil {
			return
		}
		whole := short
		if bytes.HasPrefix(first, []byte("GET /large")) {
			whole = long
		}
		key := ""
		for {
			line, err := reader.ReadSlice('\n')
			if err != nil {
				return
			}
			if len(line) <= 2 {
				break
			}
			if name, value, _ := strings.Cut(string(line), ":"); len(name) == 17 && strings.EqualFold(name, "sec-websocket-key") {
				key = strings.TrimSpace(value)
			}
		}
		if key != "" {
			sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
			fmt.Fprintf(connection, "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\n"+
				"sec-websocket-accept: %s\r\n\r\n", base64.StdEncoding.EncodeToString(sum[:]))
			frames(connection, reader)
			return
		}
		if _, err := connection.Write(whole); err != nil || once {
			return
		}
	}
}

// Frames sends each WebSocket message back, all of which have the same length.
func frames(connection net.Conn, reader *bufio.Reader) {
	in := make([]byte, maskedHead+frameLength)
	out := append(frameHead(0), make([]byte, frameLength)...)
	for {
		if _, err := io.ReadFull(reader, in); err != nil {
			return
		}
		mask := in[frameHeadLength:maskedHead]
		for place, each := range in[maskedHead:] {
			out[frameHeadLength+place] = each ^ mask[place%4]
		}
		if _, err := connection.Write(out); err != nil {
			return
		}
	}
}

func echo(connection net.Conn) {
	buffer := make([]byte, small)
	for {
		if _, err := io.ReadFull(connection, buffer); err != nil {
			return
		}
		if _, err := connection.Write(buffer); err != nil {
			return
		}
	}
}

func handle(writer http.ResponseWriter, request *http.Request) {
	if request.Header.Get("Content-Type") != "application/grpc" {
		body := smallBody
		if strings.HasPrefix(request.URL.Path, "/large") {
			body = largeBody
		}
		writer.Header().Set("Content-Type", "text/plain")
		writer.Write(body)
		return
	}
	message, _ := io.ReadAll(request.Body)
	writer.Header().Set("Content-Type", "application/grpc")
	writer.Header().Set("Trailer", "Grpc-Status")
	writer.Write(message)
	writer.Header().Set("Grpc-Status", "0")
}
