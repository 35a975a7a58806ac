variable "project" {
  description = "Project that pays."
  type        = string
}

variable "zone" {
  description = "Zone that has the GPUs; `gcloud compute accelerator-types list` lists zones by GPU."
  type        = string
  default     = "us-central1-a"
}

variable "name" {
  description = "Name of the cluster."
  type        = string
  default     = "scalescope"
}

variable "network" {
  description = "VPC network."
  type        = string
  default     = "default"
}

variable "subnetwork" {
  description = "Subnetwork of that network, in the zone's region."
  type        = string
  default     = "default"
}

variable "cpu_machine_type" {
  description = "Machine type of nodes on demand, for schedulers, flows and the operator."
  type        = string
  default     = "e2-standard-4"
}

variable "cpu_max_nodes" {
  description = "Most nodes on demand; there is always one."
  type        = number
  default     = 3
}

variable "cpu_spot_machine_type" {
  description = "Machine type of spot nodes for workers."
  type        = string
  default     = "n2-standard-8"
}

variable "cpu_spot_max_nodes" {
  description = "Most spot nodes for workers: this bounds what an hour can cost."
  type        = number
  default     = 10
}

variable "gpu_machine_type" {
  description = "Machine type of spot nodes with GPUs."
  type        = string
  default     = "g2-standard-8"
}

variable "gpu_type" {
  description = "Model of the GPUs, which the machine type must fit."
  type        = string
  default     = "nvidia-l4"
}

variable "gpus_per_node" {
  description = "GPUs of each node, which the machine type must have."
  type        = number
  default     = 1
}

variable "gpu_spot_max_nodes" {
  description = "Most spot nodes with GPUs; the quota of preemptible GPUs must allow them."
  type        = number
  default     = 8
}

variable "namespace" {
  description = "Namespace of flows and workers."
  type        = string
  default     = "scalescope"
}

variable "flows_service_account" {
  description = "Kubernetes service account of flows, in that namespace."
  type        = string
  default     = "scalescope-flows"
}

variable "records_bucket" {
  description = "Bucket to which flows may write records; empty is none."
  type        = string
  default     = ""
}
