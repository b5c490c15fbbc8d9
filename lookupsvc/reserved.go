package lookupsvc

import (
	"context"

	pb "inferencecache.io/lookuptier/gen/inferencecache/v1alpha1"
	"inferencecache.io/lookuptier/ranking"
)

// LookupPDRoute is reserved for prefill/decode routing and has no hint yet.
func (s *Service) LookupPDRoute(context.Context, *pb.LookupPDRouteRequest) (*pb.LookupPDRouteResponse, error) {
	return &pb.LookupPDRouteResponse{ReasonCode: string(ranking.ReasonNoHint)}, nil
}

// RenderTemplate is reserved for prompt templates and renders nothing yet.
func (s *Service) RenderTemplate(context.Context, *pb.RenderTemplateRequest) (*pb.RenderTemplateResponse, error) {
	return &pb.RenderTemplateResponse{ReasonCode: "OK"}, nil
}
