"""A whole job as processes of Flower: certificates, servers, node registration."""
